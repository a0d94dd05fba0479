package serve

import (
	"context"
	"crypto/sha256"
	"errors"
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

const (
	// verdictLasts is for how long the API server is not asked again about a token.
	verdictLasts = time.Minute
	// verdictsKept is how many verdicts are kept of tokens that let nobody in: a new one
	// for each request would fill the memory.
	verdictsKept = 10000
	// trustLasts is for how long a token that was let in is no stranger's.
	trustLasts = time.Hour
	// laneWidth is how many reviews of each kind may be under way at a time.
	laneWidth = 8
	// reviewPatience is how long they may take, and wait for one another.
	reviewPatience = 10 * time.Second
	// longestToken is what no real token comes near.
	longestToken = 16 << 10
)

// guard lets those read the metrics whom the API server knows by their token, and who
// may get the path. The library for this is that of the API server itself; with it every
// gpuctl command would take half as long again to start (docs/decisions/0006). It is safe
// for concurrent use.
type guard struct {
	reviews  kubernetes.Interface
	verdicts *cache.Expiring // status codes, by hashes of token, method and path
	trusted  *cache.Expiring // hashes of the tokens that were let in
	// Whoever reaches the port can have tokens reviewed. Those who were let in before
	// wait for one another only.
	known, strangers lane
	log              logr.Logger
	next             http.Handler
}

// lane holds as many reviews as are under way.
type lane chan struct{}

// errBusy says that too many strangers ask.
var errBusy = errors.New("too many tokens are being reviewed")

func guardOf(reviews kubernetes.Interface, log logr.Logger, next http.Handler) *guard {
	return &guard{
		reviews: reviews, verdicts: cache.NewExpiring(), trusted: cache.NewExpiring(),
		known: make(lane, laneWidth), strangers: make(lane, laneWidth), log: log, next: next,
	}
}

// newGuard is a metrics server's FilterProvider.
func newGuard(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // one limit for all would let anybody use it up
	reviews, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return guardOf(reviews, log, next), nil
	}, nil
}

// ServeHTTP answers 401 to whom nobody knows and 403 to who may not; 503 when the API
// server does not say, or too many strangers ask.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "metrics can be read only", http.StatusMethodNotAllowed)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > longestToken {
		http.Error(w, "give a bearer token", http.StatusUnauthorized)
		return
	}
	code, err := g.verdict(token, r)
	switch {
	case errors.Is(err, errBusy):
		http.Error(w, "too many ask at a time", http.StatusServiceUnavailable)
	case err != nil:
		g.log.Error(err, "ask the API server who may read metrics")
		http.Error(w, "the API server does not say whether you may", http.StatusServiceUnavailable)
	case code != http.StatusOK:
		http.Error(w, http.StatusText(code), code)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// verdict returns the status code for a token, and asks the API server if need be.
func (g *guard) verdict(token string, r *http.Request) (int, error) {
	who := sha256.Sum256([]byte(token))
	key := sha256.Sum256([]byte(token + "\x00" + r.Method + "\x00" + r.URL.Path))
	if code, known := g.verdicts.Get(key); known {
		return code.(int), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewPatience)
	defer cancel()
	leave, err := g.enter(ctx, who)
	if err != nil {
		return 0, err
	}
	defer leave()
	code, err := g.judge(ctx, token, r)
	if err != nil {
		return 0, err
	}
	if code == http.StatusOK {
		g.trusted.Set(who, true, trustLasts)
	}
	if code == http.StatusOK || g.verdicts.Len() < verdictsKept {
		g.verdicts.Set(key, code, verdictLasts)
	}
	return code, nil
}

// enter waits until a token that was let in before may be reviewed. Strangers do not
// wait: the error is errBusy when too many of them ask.
func (g *guard) enter(ctx context.Context, token [sha256.Size]byte) (leave func(), err error) {
	if _, ok := g.trusted.Get(token); !ok {
		select {
		case g.strangers <- struct{}{}:
			return func() { <-g.strangers }, nil
		default:
			return nil, errBusy
		}
	}
	select {
	case g.known <- struct{}{}:
		return func() { <-g.known }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other reviews: %w", ctx.Err())
	}
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
