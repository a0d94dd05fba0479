package cluster

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podAddress is the address of every pod: one that leads nowhere. The API
// server refuses loopback addresses.
const podAddress = "192.0.2.1"

// endpointsInterval is how soon a Service that is exposed gets endpoints.
const endpointsInterval = 500 * time.Millisecond

// publish gives all Services that are exposed and exist an endpoint. No one
// connects to it, but an APIService without endpoints is not available.
func (s *stack) publish(ctx context.Context) error {
	var errs []error
	for _, key := range s.egress.exposed() {
		namespace, name, _ := strings.Cut(key, "/")
		service, err := s.clientset.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			_, err = s.clientset.DiscoveryV1().EndpointSlices(namespace).Create(ctx, endpoints(service), metav1.CreateOptions{})
		}
		if !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endpoints returns an endpoint for every port of a Service, which goes with it.
func endpoints(service *corev1.Service) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "exposed-" + service.Name, Namespace: service.Namespace,
			Labels:          map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "gpuctl-test"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{podAddress}}},
	}
	for _, p := range service.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol})
	}
	return slice
}
