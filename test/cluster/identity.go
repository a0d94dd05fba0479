package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// nodesConfig returns the configuration of the user who plays the heartbeats of
// all nodes. It is no node, for one may change only itself.
func (s *stack) nodesConfig() (*rest.Config, error) {
	return s.credentials.client(s.admin.Host, "heartbeats", "system:masters", nodesGroup)
}

// serviceAccountConfig returns a configuration with a token of a ServiceAccount.
func (s *stack) serviceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	seconds := int64(validity / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := s.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := s.credentials.anonymous(s.admin.Host)
	config.BearerToken = token.Status.Token
	return config, nil
}

// tokenConfig returns a configuration with a token of a ServiceAccount that
// ends, or has ended, at a given time.
func (s *stack) tokenConfig(ctx context.Context, namespace, name string, expires time.Time) (*rest.Config, error) {
	account, err := s.clientset.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	config := s.credentials.anonymous(s.admin.Host)
	config.BearerToken, err = signToken(s.credentials.tokenKey, namespace, name, string(account.UID), expires)
	return config, err
}

// createAccount creates a ServiceAccount unless it exists.
func (s *stack) createAccount(ctx context.Context, namespace, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.clientset.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// grant lets a subject do what the rules say, in all namespaces. It returns the
// name of the ClusterRole and its binding.
func (s *stack) grant(ctx context.Context, subject rbacv1.Subject, rules []rbacv1.PolicyRule) (string, error) {
	rbac := s.clientset.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	role, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	}
	_, err = rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return role.Name, err
}

// revoke undoes grant.
func (s *stack) revoke(ctx context.Context, role string) error {
	rbac := s.clientset.RbacV1()
	if err := rbac.ClusterRoleBindings().Delete(ctx, role, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err := rbac.ClusterRoles().Delete(ctx, role, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
