package bind

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/test/wire"
)

// capacity is how many units nodes serve.
var capacity = map[string]int{"n1": 1, "n2": 1}

// step is one thing that happens.
type step struct {
	Who  int    // which leader
	What string // lead, work, pause (while the other leads and works), edit, renew
	// Fault is of the leader's requests: none, crash after K of them, lose the answer of
	// some.
	Fault string
	K     int
}

func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Who:   rapid.IntRange(0, 1).Draw(t, "who"),
			What:  rapid.SampledFrom([]string{"lead", "work", "work", "pause", "pause", "pause", "renew", "renew", "edit"}).Draw(t, "what"),
			Fault: rapid.SampledFrom([]string{"", "", "crash", "lose"}).Draw(t, "fault"),
			K:     rapid.IntRange(0, 3).Draw(t, "k"),
		}
	}), 6, 12)
}

// Whatever two leaders do, and wherever they crash, pause or lose answers: no node has
// more units than it serves, and each term of a ledger is one leader's.
func TestSchedules(t *testing.T) {
	seed, all := rand.IntN(1<<30), steps()
	for i := range 8 {
		w := newWorld(t)
		s := &schedule{world: w, terms: map[string]string{}}
		for p := range s.parties {
			s.parties[p] = w.party(fmt.Sprint(p))
		}
		for d := range 4 {
			w.device(fmt.Sprintf("d%d", d))
		}
		done := []step{{What: "lead"}}
		for n, next := range slices.Concat(done, all.Example(seed+i)) {
			s.run(next)
			done = append(done[:n:n], next)
			if problem := s.problem(); problem != "" {
				t.Fatalf("%s: seed %d, after %+v", problem, seed+i, done)
			}
		}
		w.leader("last")
		if problem := s.problem(); problem != "" {
			t.Fatalf("%s: seed %d, after all and one more leader: %+v", problem, seed+i, done)
		}
		w.clear()
	}
}

type schedule struct {
	*world

	parties [2]party
	terms   map[string]string // ledger and term: who led
	clash   string
}

func (s *schedule) run(next step) {
	switch p := s.parties[next.Who]; next.What {
	case "edit":
		s.edit(fmt.Sprintf("d%d", next.K))
	case "renew": // its units are free
		s.remove(fmt.Sprintf("d%d", next.K))
		s.device(fmt.Sprintf("d%d", next.K))
	case "pause":
		s.pause(next)
	default:
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
		defer cancel()
		p.Set(next.fault(cancel))
		defer p.Set(nil)
		if next.What == "lead" {
			s.lead(ctx, next.Who)
		} else {
			s.work(ctx, next.Who, next.K)
		}
	}
}

// fault returns what happens to the requests of a step.
func (next step) fault(crash func()) wire.Fault {
	return func(x *wire.Exchange) error {
		switch {
		case next.Fault == "crash" && x.N > next.K:
			crash()
			return wire.ErrLost
		case next.Fault == "lose" && x.Verb != "GET" && x.N <= 2:
			return x.Drop()
		}
		return x.Send()
	}
}

// lead has a party try to lead.
func (s *schedule) lead(ctx context.Context, who int) {
	p := s.parties[who]
	if p.Lead(ctx) != nil {
		return
	}
	key := fmt.Sprintf("%s %d", p.Ledger.stored.UID, p.Term())
	holder := fmt.Sprintf("%d, %s", who, p.Ledger.stored.ResourceVersion)
	if other, ok := s.terms[key]; ok && other != holder {
		s.clash = fmt.Sprintf("term %s is led by %s and by %s", key, other, holder)
	}
	s.terms[key] = holder
}

// work has a party decide and commit.
func (s *schedule) work(ctx context.Context, who, k int) {
	_, _ = s.parties[who].Commit(ctx, s.decisions(k))
}

// pause holds a party's swap or its writes, while the other one leads and works; at times
// the ledger goes first.
func (s *schedule) pause(next step) {
	p := s.parties[next.Who]
	g := wire.NewGate()
	held := func(x *wire.Exchange) error {
		if x.Verb == "PUT" && (x.What == "status" || x.What == "ledger" && next.K == 0) {
			return g.Pass(x)
		}
		return x.Send()
	}
	p.Set(held)
	defer p.Set(nil)
	ended := make(chan struct{})
	entries := s.decisions(next.K)
	go func() {
		defer close(ended)
		_, _ = p.Commit(s.Context(), entries)
	}()
	select {
	case <-g.Held:
	case <-ended:
	}
	if next.Fault == "crash" {
		m, _ := s.stored()
		s.must(admin.Delete(s.Context(), m))
	}
	s.lead(s.Context(), 1-next.Who)
	s.work(s.Context(), 1-next.Who, next.K+1)
	close(g.Open)
	<-ended
}

// decisions places a device or moves one, by a live list, as the rules for a batch say:
// what moves counts on both nodes.
func (s *schedule) decisions(k int) []Entry {
	all := s.list()
	used := map[string]int{}
	for _, d := range all {
		used[nodeOf(&d)]++
	}
	for i := range all {
		d := &all[(i+k)%len(all)]
		for _, node := range []string{"n1", "n2"} {
			if room := used[node] < capacity[node]; room && (nodeOf(d) == "" || k == 3 && nodeOf(d) != node) {
				return []Entry{place(d, node)}
			}
		}
	}
	return nil
}

// problem says which promise does not hold.
func (s *schedule) problem() string {
	used := map[string]int{}
	for _, node := range s.nodes() {
		used[node]++
	}
	for node, n := range capacity {
		if used[node] > n {
			return fmt.Sprintf("%s has %d units and serves %d", node, used[node], n)
		}
	}
	return s.clash
}
