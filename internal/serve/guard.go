package serve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// verdictLasts is for how long the API server is not asked again about a token.
const verdictLasts = time.Minute

// guard lets those read the metrics whom the API server knows by their token, and who
// may get the path. The library for this is that of the API server itself; with it every
// gpuctl command would take half as long again to start (docs/decisions/0006).
type guard struct {
	reviews  kubernetes.Interface
	verdicts *cache.Expiring // status codes, by hashes of token and path
	log      logr.Logger
	next     http.Handler
}

// newGuard is a metrics server's FilterProvider.
func newGuard(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	reviews, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return &guard{reviews: reviews, verdicts: cache.NewExpiring(), log: log, next: next}, nil
	}, nil
}

// ServeHTTP answers 401 to whom nobody knows and 403 to who may not; 503 when the API
// server does not say.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		http.Error(w, "give a bearer token", http.StatusUnauthorized)
		return
	}
	key := sha256.Sum256([]byte(token + "\x00" + r.Method + "\x00" + r.URL.Path))
	code, known := g.verdicts.Get(key)
	if !known {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		verdict, err := g.judge(ctx, token, r)
		if err != nil {
			g.log.Error(err, "ask the API server who may read metrics")
			http.Error(w, "the API server does not say whether you may", http.StatusServiceUnavailable)
			return
		}
		code = verdict
		g.verdicts.Set(key, verdict, verdictLasts)
	}
	if code != http.StatusOK {
		http.Error(w, http.StatusText(code.(int)), code.(int))
		return
	}
	g.next.ServeHTTP(w, r)
}

// judge asks the API server who holds a token, and whether they may.
func (g *guard) judge(ctx context.Context, token string, r *http.Request) (int, error) {
	who, err := g.reviews.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range who.Status.User.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	may, err := g.reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Status.User.Username, UID: who.Status.User.UID, Groups: who.Status.User.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the access of %s: %w", who.Status.User.Username, err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
