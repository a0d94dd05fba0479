package attach

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Options are what starts, claims and the collector need. All but Lease and
// Launcher are required.
type Options struct {
	Feed   *cluster.Feed
	Client client.Client        // writes
	Live   client.Reader        // reads from etcd
	Lease  types.NamespacedName // of who leads; empty without leader election
	// Launcher says what a VMI's launcher needs of a node, as a bind request has it. Its
	// errors are for the tenant.
	Launcher func(context.Context, *kubevirt.VirtualMachineInstance) (string, error)
	Now      func() time.Time
	Log      logr.Logger
}

// Starter takes the devices of VMIs that are created, and gives them back where that
// comes to nothing. It is safe for concurrent use.
type Starter struct {
	Options
	leader leader
}

// NewStarter makes a starter.
func NewStarter(o Options) *Starter {
	return &Starter{Options: o, leader: leader{live: o.Live, lease: o.Lease, now: o.Now}}
}

const (
	// answerWait is how long the binder may take to answer.
	answerWait = 3 * time.Second
	// leaderCheck is how often it is looked meanwhile whether anybody leads.
	leaderCheck = 500 * time.Millisecond
	// aftermath is how long a start that is refused may take to give back what it took.
	aftermath = 30 * time.Second
)

// Started is what is written into a VMI that may be stored.
type Started struct {
	Name      string // its own, or the one that was drawn for it
	RequestID string // "" in a dry run
	GPUs      []kubevirt.GPU
}

// start is one CREATE of one VMI.
type start struct {
	*vmi
	dry     bool
	id      string
	members []*member
}

// Start takes the whole set of a VMI that is to be stored, and returns what goes into
// it. The error is what [diagnose.Refused] understands; then nothing is taken any more,
// or nothing will be in a minute. A dry run writes nothing.
func (s *Starter) Start(ctx context.Context, object *kubevirt.VirtualMachineInstance, dry bool) (*Started, error) {
	v, err := read(object)
	if err != nil {
		return nil, err
	}
	if !s.Feed.Synced() {
		return nil, errNotYet
	}
	if again, err := s.again(ctx, v); again != nil || err != nil {
		return again, err
	}
	st := &start{vmi: v, dry: dry}
	if err := s.check(ctx, st); err != nil {
		return nil, err
	}
	if dry {
		return st.started(), nil
	}
	launcher := ""
	if s.Launcher != nil {
		if launcher, err = s.Launcher(ctx, object); err != nil {
			return nil, err
		}
	}
	st.id = newID()
	if err := s.take(ctx, st, launcher); err != nil {
		s.giveBack(ctx, st)
		return nil, s.explain(ctx, st, err)
	}
	return st.started(), nil
}

// explain names what a tenant can change where the volumes of a VMI and its devices are apart.
func (s *Starter) explain(ctx context.Context, st *start, err error) error {
	var r *diagnose.Refusal
	if !errors.As(err, &r) || !r.Unsuited() {
		return err
	}
	claims, failed := cluster.BoundClaims(ctx, s.Live, st.object)
	if failed != nil || len(claims) == 0 {
		return err
	}
	return r.KeptBy(claims, st.references.Devices)
}

// started returns what goes into the VMI: a gpus entry for each unit.
func (st *start) started() *Started {
	return &Started{Name: st.name, RequestID: st.id, GPUs: entries(st.members)}
}

// entries are the gpus of a set.
func entries(members []*member) (out []kubevirt.GPU) {
	for _, m := range members {
		for unit := range int(m.units) {
			out = append(out, kubevirt.GPU{Name: v1alpha1.GPUName(m.name, unit), DeviceName: m.resource})
		}
	}
	return out
}

// newID draws a start's id.
func newID() string {
	var random [16]byte
	_, _ = cryptorand.Read(random[:]) // it does not fail
	return hex.EncodeToString(random[:])
}

// validID reports what newID could have drawn.
func validID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 16 && id == strings.ToLower(id)
}

// generated returns a name that begins with a prefix, as the API server makes it.
func generated(prefix string) string {
	return prefix[:min(len(prefix), longestGenerated-nameRandom)] + rand.String(nameRandom)
}

// nameFor returns a name for the device of a template. A dry run has no id by which it is
// known when the API server calls again, so it draws nothing: what it gave is found to be
// its own.
func (st *start) nameFor(template int) string {
	if st.dry {
		return deviceName(st.name, fmt.Sprintf("%05d", template))
	}
	return deviceName(st.name, rand.String(nameRandom))
}

const (
	// nameRandom is how many characters make a name unique, longestGenerated how many the
	// API server gives the name of an object at most.
	nameRandom       = 5
	longestGenerated = 63
)

// deviceName returns the name of a device that is made for a VMI, with an end of
// nameRandom characters.
func deviceName(vmi, end string) string {
	base := strings.ReplaceAll(vmi, ".", "-")
	base = strings.Trim(base[:min(len(base), v1alpha1.MaxDeviceName-nameRandom-1)], "-")
	if len(validation.IsDNS1123Label(base)) > 0 {
		base = "vm"
	}
	return base + "-" + end
}

// byUID sorts members as they are written.
func byUID(members []*member) []*member {
	out := slices.Clone(members)
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(string(a.device.UID), string(b.device.UID)) })
	return out
}
