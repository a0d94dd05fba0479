package cluster

import (
	"context"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// nodes are what is known of them, from several kinds of objects.
type nodes struct {
	by      map[string]*node
	alive   map[string]bool     // nodes whose agents report
	asked   bool                // for the agents, once
	sets    map[owned]bool      // DaemonSets of the device plugin
	plugins map[string][]plugin // by node
}

// node is one of them.
type node struct {
	facts  *gpu.Node // nil while there is no Node
	host   *gpu.Host // nil while there is no GPUNode
	doubt  bool      // the Node cannot be read
	opaque bool      // the GPUNode cannot be read
	told   *usage.Node
}

// owned is what a DaemonSet makes.
type owned struct {
	namespace string
	set       types.UID
}

// plugin is a pod of the device plugin.
type plugin struct {
	owned
	pod     types.UID
	release gpu.Release
}

func newNodes() nodes {
	return nodes{by: map[string]*node{}, alive: map[string]bool{}, sets: map[owned]bool{}, plugins: map[string][]plugin{}}
}

func (n *nodes) at(name string) *node {
	if n.by[name] == nil {
		n.by[name] = &node{}
	}
	return n.by[name]
}

// release returns that of the device plugin on a node; of several the newest. A pod
// counts in the namespace of the DaemonSet that controls it: elsewhere anybody may say
// that it does.
func (n *nodes) release(name string) (r gpu.Release) {
	for _, p := range n.plugins[name] {
		if n.sets[p.owned] && r.Compare(p.release) < 0 {
			r = p.release
		}
	}
	return r
}

// hasPlugin takes a pod of the device plugin.
func (n *nodes) hasPlugin(node string, p plugin) {
	n.noPlugin(node, p.pod)
	n.plugins[node] = append(n.plugins[node], p)
}

// noPlugin forgets a pod of the device plugin.
func (n *nodes) noPlugin(node string, pod types.UID) {
	left := slices.DeleteFunc(n.plugins[node], func(p plugin) bool { return p.pod == pod })
	if n.plugins[node] = left; len(left) == 0 {
		delete(n.plugins, node)
	}
}

// of returns the node as books need it; nil when there is none. One of which something
// cannot be read is not ready: nothing new goes there, and nothing is concluded.
func (n *nodes) of(name string) *usage.Node {
	k := n.by[name]
	if k == nil || k.facts == nil {
		return nil
	}
	out := usage.Node{Facts: *k.facts, Host: k.host, Silent: k.host != nil && !n.alive[name]}
	out.Facts.Plugin = n.release(name)
	out.Facts.NotReady = out.Facts.NotReady || k.doubt || k.opaque
	return &out
}

// tell brings a node up to date in the books.
func (f *Feed) tell(name string) bool {
	k, now := f.nodes.at(name), f.nodes.of(name)
	had := k.told
	if reflect.DeepEqual(had, now) {
		f.nodes.tidy(name)
		return false
	}
	if k.told = now; now == nil {
		f.books.DropNode(name)
	} else {
		f.books.PutNode(*now)
	}
	f.nodes.tidy(name)
	return true
}

// tidy forgets a node of which nothing is known any more.
func (n *nodes) tidy(name string) {
	if k := n.by[name]; k.facts == nil && k.host == nil && !k.opaque && k.told == nil {
		delete(n.by, name)
	}
}

// factsOf reads a Node. What the error says cannot be read is left out.
func factsOf(d *manifest.Document) (*gpu.Node, error) {
	n, err := readLabelled(d, func(string) bool { return true })
	if err != nil {
		return &gpu.Node{Name: n.Name}, err
	}
	return &n, nil
}

func (f *Feed) nodeEvents() events {
	return events{
		put: func(_, now metav1.Object) bool {
			d := f.document(now)
			k := f.nodes.at(now.GetName())
			facts, err := factsOf(&d)
			facts.Capacity, facts.Allocatable = share(&f.pool, facts.Capacity), share(&f.pool, facts.Allocatable)
			if k.facts == nil || !reflect.DeepEqual(k.facts, facts) {
				k.facts = facts
			}
			k.doubt = err != nil
			f.room.node(now.(*unstructured.Unstructured), k.facts.Labels)
			f.unreadable(d.Ref(), err)
			return f.tell(now.GetName())
		},
		drop: func(o metav1.Object) bool {
			d := f.document(o)
			f.unreadable(d.Ref(), nil)
			f.room.index.drop(o.GetName())
			k := f.nodes.at(o.GetName())
			k.facts, k.doubt = nil, false
			return f.tell(o.GetName())
		},
		gone: func() bool {
			for name := range f.room.index.nodes {
				f.room.index.drop(name)
			}
			return f.each(func(k *node) { k.facts, k.doubt = nil, false })
		},
	}
}

// each changes all nodes.
func (f *Feed) each(change func(*node)) (changed bool) {
	for name, k := range f.nodes.by {
		change(k)
		changed = f.tell(name) || changed
	}
	return changed
}

func (f *Feed) reportEvents() events {
	return events{
		put: func(_, now metav1.Object) bool {
			d, name := f.document(now), now.GetName()
			k := f.nodes.at(name)
			host, err := f.pool.hostOf(&d)
			k.host, k.opaque = host, err != nil
			f.unreadable(d.Ref(), err)
			changed := f.tell(name)
			if changed && f.nodes.asked && !f.nodes.alive[name] {
				signal(f.ask) // what is written now is not silent
			}
			return changed
		},
		drop: func(o metav1.Object) bool {
			d := f.document(o)
			f.unreadable(d.Ref(), nil)
			k := f.nodes.at(o.GetName())
			k.host, k.opaque = nil, false
			return f.tell(o.GetName())
		},
		gone: func() bool {
			return f.each(func(k *node) { k.host, k.opaque = nil, false })
		},
	}
}

// keepAsking asks which agents report until ctx ends.
func (f *Feed) keepAsking(ctx context.Context) {
	for {
		wait := askEvery
		if !f.askAgents(ctx) {
			wait = askSoonest
		}
		f.buryUnseen(ctx)
		began := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			continue
		case <-f.ask:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askSoonest - time.Since(began)):
		}
	}
}

// askAgents reads which agents report. While that fails it is as it was, and silence at
// first: then nothing is concluded.
func (f *Feed) askAgents(ctx context.Context) bool {
	agents, _, err := f.client.Agents(ctx, f.o.Namespace, time.Now())
	if ctx.Err() != nil {
		return false
	}
	f.change(func() bool {
		first := !f.nodes.asked
		f.nodes.asked = true
		f.unreadable("the agents", err)
		if err != nil {
			return first
		}
		alive := map[string]bool{}
		for _, a := range agents {
			if a.Reports {
				alive[a.Node] = true
			}
		}
		f.nodes.alive = alive
		return f.each(func(*node) {}) || first
	})
	return err == nil
}
