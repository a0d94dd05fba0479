// Package certs keeps the certificates of the webhooks: it makes them, has the API
// server trust them, and serves none that is not trusted.
//
// All replicas do the same, each write a compare-and-swap. What they share is one
// Secret, and the caBundle of the webhook configurations. A certificate is changed
// without a call that fails, since
//  1. an authority that signs is only added to those that are trusted; the earlier ones
//     stay for an hour,
//  2. a replica serves the Secret's certificate when it has seen for [Options.Settle]
//     that all webhooks trust it, and the one from before until then,
//  3. who writes a bundle has read the configuration before the Secret: an older bundle
//     never takes the place of a newer one.
//
// The certificates are made and judged by cert-controller. Its own controller is not
// used: it puts a new authority in the place of the old one while replicas still serve
// what that one signed, and reads all Secrets of the namespace and all webhook
// configurations of the cluster.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Options say what is kept, and how.
type Options struct {
	Core           kubernetes.Interface
	Objects        dynamic.Interface
	Secret         types.NamespacedName
	Name           string // DNS name by which the API server calls
	Configurations []Configuration
	Manager        string // of the fields that are written
	Log            logr.Logger
	Now            func() time.Time
	// Look is how often all is looked at; while something is under way, every second.
	Look time.Duration
	// Settle is for how long a bundle has to be seen before it is relied on: that long
	// API servers may take to see it, too.
	Settle time.Duration
}

// Keeper keeps the certificates. It is safe for concurrent use.
type Keeper struct {
	o Options

	mu      sync.Mutex
	serving pair
	problem error // of the last look
	waiting pair  // trusted, but not for long enough
	since   time.Time
}

// New returns a keeper that has nothing to serve yet.
func New(o Options) *Keeper {
	return &Keeper{o: o, problem: errors.New("they were not looked at yet")}
}

const (
	// underway is how often is looked while something has to change.
	underway = time.Second
	// lookTakes is how long one look may take.
	lookTakes = 10 * time.Second
)

// Start keeps the certificates until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		pause := k.o.Look
		if !k.look(ctx) {
			pause = min(underway, pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// NeedLeaderElection tells the manager that every replica keeps them.
func (k *Keeper) NeedLeaderElection() bool { return false }

// look does what is due, and says whether nothing is left to do.
func (k *Keeper) look(ctx context.Context) (settled bool) {
	limited, cancel := context.WithTimeout(ctx, lookTakes)
	defer cancel()
	next, err := k.keep(limited)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.problem = err }()
	if err != nil {
		// A conflict says that another replica has done it.
		if known := k.problem; !apierrors.IsConflict(err) && ctx.Err() == nil && (known == nil || known.Error() != err.Error()) {
			k.o.Log.Error(err, "keep the webhooks' certificates")
		}
		k.waiting = pair{}
		return false
	}
	now := k.o.Now()
	switch {
	case next.is(k.serving):
		k.waiting = pair{}
		return true
	case !next.is(k.waiting):
		k.waiting, k.since = next, now
	case now.Sub(k.since) >= k.o.Settle:
		k.serving, k.waiting = next, pair{}
		k.o.Log.Info("another certificate is served to the API server", "from", next.cert.Leaf.NotBefore, "until", next.cert.Leaf.NotAfter)
		return true
	}
	return false
}

// keep makes what is due, has it trusted, and returns the certificate that should be
// served.
func (k *Keeper) keep(ctx context.Context) (next pair, err error) {
	configurations, err := k.configurations(ctx)
	if err != nil {
		return pair{}, err
	}
	var outside [][]byte
	for _, c := range configurations {
		outside = append(outside, c.bundles()...)
	}
	data, err := k.secret(ctx, outside)
	if err != nil {
		return pair{}, err
	}
	for _, c := range configurations {
		changed, err := k.trust(ctx, c, data[caCert])
		if err != nil {
			return pair{}, err
		}
		if changed {
			k.o.Log.Info("the API server is told whom to trust", "configuration", c.String(), "authorities", len(parse(data[caCert])))
		}
	}
	return pairOf(data)
}

// Certificate is a tls.Config's GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving.cert == nil {
		return nil, k.unready()
	}
	return k.serving.cert, nil
}

// Ready returns an error until a certificate is served.
func (k *Keeper) Ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving.cert == nil {
		return k.unready()
	}
	return nil
}

// unready says why there is nothing to serve.
func (k *Keeper) unready() error {
	if k.problem != nil {
		return fmt.Errorf("the webhooks have no certificate: %w", k.problem)
	}
	return errors.New("the webhooks have no certificate: the API server was told a moment ago whom to trust")
}
