package alloc

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/often"
)

// shown is a snapshot in words, for failures.
func shown(s *Snapshot) string {
	text := ""
	s.nodes.all(func(n *node) bool {
		text += fmt.Sprintf("%s open=%v", n.name, n.open())
		for _, p := range n.pools {
			text += fmt.Sprintf(" %s %d+%d+%d/%d", p.resource, p.held, p.running, p.raw, p.served)
		}
		text += "\n"
		return true
	})
	for d := range s.Devices() {
		text += fmt.Sprintf("%+v\n", d)
	}
	return text
}

// checkSound says what is wrong with a decision.
func checkSound(s *Snapshot, r Request, d Decision) error {
	var named []Member
	for i, m := range r.Set {
		if m.UID == "" {
			m.UID = fmt.Sprint("new", i)
		}
		named = append(named, m)
	}
	after := s.With(d.Place(s, named, Attached)...)
	for _, m := range named {
		if got, ok := after.Device(m.UID); !ok || got.Node != d.Node || got.Lost || got.Units != m.Units {
			return fmt.Errorf("the set is not on one node: %+v", got)
		}
	}
	touched := map[string]bool{d.Node: true}
	for i, m := range d.Moves {
		if slices.ContainsFunc(d.Moves[:i], func(other Move) bool { return other.UID == m.UID }) {
			return fmt.Errorf("%s moves twice", m.UID)
		}
		was, _ := s.Device(m.UID)
		switch {
		case was.State != Held || was.Lost:
			return fmt.Errorf("%+v moves", was)
		case was.Node != m.From || m.From == m.To:
			return fmt.Errorf("%+v is not %+v", m, was)
		}
		for _, member := range r.Set {
			if member.UID == m.UID {
				return fmt.Errorf("%s is of the set", m.UID)
			}
		}
		touched[m.To] = true
	}
	for name := range touched {
		n := after.at(name)
		if !n.open() {
			return fmt.Errorf("%s takes nothing new", name)
		}
		for _, p := range n.pools {
			if p.free() < 0 && p.held > heldBefore(s, p) {
				return fmt.Errorf("%s serves %d of %s, holds %d, and pods take %d", name, p.served, p.resource, p.held, p.raw+p.running)
			}
		}
	}
	if r.Fits != nil && r.Fits(d.Node) != "" {
		return fmt.Errorf("%s does not fit", d.Node)
	}
	return checkMoves(s, d.Moves)
}

// checkMoves says which move has no room when its turn comes.
func checkMoves(s *Snapshot, moves []Move) error {
	for _, m := range moves {
		d, _ := s.Device(m.UID)
		if s.Free(m.To, d.Resource) < d.Units {
			return fmt.Errorf("there is no room for %+v of %+v", m, moves)
		}
		d.Node = m.To
		s = s.With(PutDevice(d))
	}
	return nil
}

// before returns the pool as it was in an earlier snapshot.
func before(s *Snapshot, p *pool) *pool {
	if was := s.pool(p.node, p.resource); was != nil {
		return was
	}
	return &pool{}
}

func heldBefore(s *Snapshot, p *pool) int64 {
	_, held := s.Units(p.node, p.resource)
	return held
}

// TestDecisionsAreSound draws clusters, those too where nodes hold too much.
func TestDecisionsAreSound(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(rapid.Bool().Draw(t, "over")).Draw(t, "cluster")
		s := c.snapshot()
		d, err := Decide(s, c.request)
		again, errAgain := Decide(c.snapshot(), c.request)
		if !reflect.DeepEqual(d, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("%+v %v, and then %+v %v", d, err, again, errAgain)
		}
		if err != nil {
			return
		}
		if err := checkSound(s, c.request, d); err != nil {
			t.Fatalf("%+v: %v\n%s", d, err, shown(s))
		}
		for name := range Ranked(s, c.request) {
			if name != d.Node || d.Moves != nil {
				t.Fatalf("%s is ranked first, and the decision is %+v\n%s", name, d, shown(s))
			}
			break
		}
	})
}

// TestRanking compares the order of nodes with one that looks at all of them.
func TestRanking(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(rapid.Bool().Draw(t, "over")).Draw(t, "cluster")
		for i := range rapid.IntRange(0, 16).Draw(t, "more nodes") { // that do not serve both
			c.nodes = append(c.nodes, numa(serves(fmt.Sprint("n", i), 8), rapid.SampledFrom([][]int64{nil, {4, 4}, {2, 6}}).Draw(t, "numa")...))
		}
		s := c.snapshot()
		q, invalid := newQuery(s, c.request)
		if invalid != nil {
			t.Fatal(invalid)
		}
		var want []string
		for _, n := range c.nodes {
			if !n.Closed && q.hasRoom(n.Name) && q.verdict(n.Name) == "" {
				want = append(want, n.Name)
			}
		}
		first := q.asks[0]
		slices.SortFunc(want, func(a, b string) int {
			if c := stdcmp.Compare(heldBy(s, c.request, b), heldBy(s, c.request, a)); c != 0 {
				return c
			}
			x, y := s.pool(a, first.Resource), s.pool(b, first.Resource)
			if c := stdcmp.Compare(q.free(a, first.Resource), q.free(b, first.Resource)); c != 0 || q.isOwn(a) {
				return stdcmp.Or(c, stdcmp.Compare(a, b))
			}
			one, other := x.side >= first.Units, y.side >= first.Units
			switch {
			case one && !other:
				return -1
			case other && !one:
				return 1
			case one:
				return stdcmp.Or(stdcmp.Compare(x.side, y.side), stdcmp.Compare(a, b))
			}
			return stdcmp.Or(stdcmp.Compare(y.side, x.side), stdcmp.Compare(a, b))
		})
		if diff := cmp.Diff(want, slices.Collect(Ranked(s, c.request))); diff != "" {
			t.Fatalf("(-want +got):\n%s%s", diff, shown(s))
		}
	})
}

// heldBy returns how much of the set is on a node.
func heldBy(s *Snapshot, r Request, node string) (units int64) {
	for _, m := range r.Set {
		if d, ok := s.Device(m.UID); ok && !d.Lost && d.Node == node {
			units += d.Units
		}
	}
	return units
}

// TestOrderOfInputDoesNotMatter compares snapshots that were made in other ways.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(true).Draw(t, "cluster")
		var changes []Change
		for _, n := range c.nodes {
			changes = append(changes, PutNode(n))
		}
		for _, d := range c.devices {
			changes = append(changes, PutDevice(d))
		}
		s := new(Snapshot).With(rapid.Permutation(changes).Draw(t, "changes")...)
		if !reflect.DeepEqual(s, c.snapshot()) {
			t.Fatalf("(-at once +step by step):\n%s", cmp.Diff(shown(c.snapshot()), shown(s)))
		}
	})
}

// TestUndo applies changes and takes them back: the snapshot is what it was, to
// the shape of its trees, and those in between have not changed either.
func TestUndo(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(true).Draw(t, "cluster")
		s := c.snapshot()
		type step struct {
			before *Snapshot
			shown  string
			undo   Change
		}
		told := map[string]Node{}
		for _, n := range c.nodes {
			told[n.Name] = n
		}
		var done []step
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			change, undo := anyChange(t, s, told)
			done = append(done, step{s, shown(s), undo})
			s = s.With(change)
		}
		for len(done) > 0 {
			last := done[len(done)-1]
			done = done[:len(done)-1]
			s = s.With(last.undo)
			if !reflect.DeepEqual(s, last.before) || shown(last.before) != last.shown {
				t.Fatalf("(-before +undone):\n%s", cmp.Diff(last.shown, shown(s)))
			}
		}
		if !reflect.DeepEqual(s, c.snapshot()) {
			t.Fatal("the first snapshot has changed")
		}
	})
}

// anyChange draws a change and what takes it back. told is what nodes serve.
func anyChange(t *rapid.T, s *Snapshot, told map[string]Node) (change, undo Change) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "z"}).Draw(t, "node")
	uid := rapid.SampledFrom([]string{"d0", "d1", "d2", "d9", "n0"}).Draw(t, "uid")
	was, known := told[name]
	undoNode := Change(DropNode(name))
	if known {
		undoNode = PutNode(was)
	}
	undoDevice := Change(DropDevice(uid))
	if d, ok := s.Device(uid); ok {
		undoDevice = PutDevice(d)
	}
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0:
		delete(told, name)
		return DropNode(name), undoNode
	case 1:
		n := serves(name, rapid.SliceOfN(rapid.Int64Range(0, 8), 1, 2).Draw(t, "units")...)
		n.Closed, n.Doubted = rapid.Bool().Draw(t, "closed"), rapid.Bool().Draw(t, "doubted")
		n.Serves[0].Raw = rapid.Int64Range(0, 2).Draw(t, "raw")
		told[name] = n
		return PutNode(n), undoNode
	case 2:
		return DropDevice(uid), undoDevice
	default:
		d := Device{
			UID: uid, Node: name, Resource: rapid.SampledFrom(names).Draw(t, "resource"), Units: rapid.Int64Range(1, 4).Draw(t, "units"),
			State: rapid.SampledFrom([]State{Held, Bound, Attached}).Draw(t, "state"), Lost: rapid.Bool().Draw(t, "lost"),
			Ordered: time.Unix(rapid.Int64Range(0, 3).Draw(t, "ordered"), 0), Running: rapid.Int64Range(0, 4).Draw(t, "running"),
		}
		return PutDevice(d), undoDevice
	}
}

// TestRefusalsAreTrue adds exactly what is missing, or lifts what is in the way,
// and the set fits; with one unit less and nobody moving it does not.
func TestRefusalsAreTrue(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(false).Draw(t, "cluster")
		s := c.snapshot()
		var r *Refusal
		_, err := Decide(s, c.request)
		if err == nil {
			return
		}
		if !errors.As(err, &r) {
			t.Fatal(err)
		}
		checkKind(t, c, s, r)
		if r.Missing == nil {
			return
		}
		for i, a := range r.Missing.Asks {
			if a.Units <= 0 {
				t.Fatalf("%v", r)
			}
			less := a
			less.Units--
			asks := append(append(append([]Ask(nil), r.Missing.Asks[:i]...), less), r.Missing.Asks[i+1:]...)
			still := c.request
			still.Effort = -1
			if _, err := Decide(s.With(grown(c, r.Missing.Node, asks)), still); err == nil {
				t.Fatalf("%v: one unit less does\n%s", r, shown(s))
			}
		}
		if d, err := Decide(s.With(grown(c, r.Missing.Node, r.Missing.Asks)), c.request); err != nil {
			t.Fatalf("%v: with these %v %v\n%s", r, d, err, shown(s))
		}
	})
}

// grown is the node with more units.
func grown(c cluster, name string, asks []Ask) Change {
	for _, n := range c.nodes {
		if n.Name != name {
			continue
		}
		out := PutNode{Name: name, Closed: n.Closed, Doubted: n.Doubted}
		for _, a := range asks {
			if a.Units > 0 {
				out.Serves = append(out.Serves, Served{Resource: a.Resource, Units: a.Units})
			}
		}
		for _, old := range n.Serves {
			found := false
			for i := range out.Serves {
				if out.Serves[i].Resource == old.Resource {
					out.Serves[i].Units += old.Units
					out.Serves[i].Raw = old.Raw
					found = true
				}
			}
			if !found {
				out.Serves = append(out.Serves, old)
			}
		}
		return out
	}
	return DropNode("")
}

// checkKind compares what a refusal says with the cluster as it was drawn.
func checkKind(t *rapid.T, c cluster, s *Snapshot, r *Refusal) {
	free := c.request
	free.Fits = nil
	_, unconstrained := Decide(s, free)
	empty := New(opened(c.nodes), nil)
	_, alone := Decide(empty, free)
	largeEnough := alone == nil
	switch {
	case (r.Kind == TooLarge || r.Kind == Unserved) == largeEnough:
		t.Fatalf("%v, and in an empty cluster %v\n%s", r, alone, shown(s))
	case (r.Kind == Constrained) != (len(r.Verdicts) > 0):
		t.Fatalf("%s with verdicts %v", r.Kind, r.Verdicts)
	case r.Kind == Constrained && unconstrained != nil:
		t.Fatalf("%v, and without constraints %v\n%s", r, unconstrained, shown(s))
	}
	for _, supply := range r.Supplies {
		var most, sum int64
		for _, n := range c.nodes {
			served, held := s.Units(n.Name, supply.Resource)
			for _, m := range c.request.Set { // what the set holds is free for it
				if d, ok := s.Device(m.UID); ok && d.Node == n.Name && d.Resource == supply.Resource {
					held -= d.Units
				}
			}
			for _, told := range n.Serves {
				if told.Resource == supply.Resource {
					held += told.Raw
				}
			}
			if free := max(0, served-held); !n.Closed {
				most, sum = max(most, free), sum+free
			}
		}
		if supply.Most != most || supply.Free != sum {
			t.Fatalf("%+v, want %d together and %d on one\n%s", supply, sum, most, shown(s))
		}
	}
}

// opened are the nodes with nobody there.
func opened(nodes []Node) (out []Node) {
	for _, n := range nodes {
		n.Closed, n.Serves = false, slices.Clone(n.Serves)
		for i := range n.Serves {
			n.Serves[i].Raw = 0
		}
		out = append(out, n)
	}
	return out
}

// TestSettling checks that no node holds too much afterwards, that nobody moves
// or is lost without need, and that settling again changes nothing.
func TestSettling(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := clusters(true).Draw(t, "cluster").snapshot()
		after, told := Settle(s, nil)
		after.nodes.all(func(n *node) bool {
			for _, p := range n.pools {
				if was := before(s, p); p.over() > 0 && !n.doubted || p.over() > was.over() || p.free() < min(0, was.free()) {
					t.Fatalf("%s holds too much\n%s", n.name, shown(after))
				}
			}
			return true
		})
		again, nothing := Settle(after, nil)
		if !reflect.DeepEqual(again, after) || !reflect.DeepEqual(nothing, Settled{}) {
			t.Fatalf("settled again: %+v\n%s", nothing, shown(after))
		}
		for _, uid := range told.Lost {
			checkLost(t, s, after, uid)
		}
		checkTold(t, s, after, told)
	})
}

// checkTold compares what Settle tells with what it did: only reservations move,
// and only off a node that held too much, or where a running VM was lost.
func checkTold(t *rapid.T, before, after *Snapshot, told Settled) {
	var want Settled
	for d := range after.Devices() {
		was, _ := before.Device(d.UID)
		switch {
		case d.Node != was.Node:
			want.Moves = append(want.Moves, Move{d.UID, was.Node, d.Node})
			p := before.pool(was.Node, was.Resource)
			if was.State != Held || !was.Lost && p.over() == 0 && !healed(before, after, p) {
				t.Fatalf("%+v moved to %s\n%s", was, d.Node, shown(before))
			}
		case d.Lost && !was.Lost:
			want.Lost = append(want.Lost, d.UID)
		case was.Lost && !d.Lost:
			want.Healed = append(want.Healed, d.UID)
			if before.at(d.Node).doubted {
				t.Fatalf("%s has its units again where nothing is certain\n%s", d.UID, shown(before))
			}
		}
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Fatalf("(-done +told):\n%s%s", diff, shown(before))
	}
}

// healed reports that a running VM in the pool has its units back.
func healed(before, after *Snapshot, p *pool) bool {
	for d := range before.Devices() {
		now, _ := after.Device(d.UID)
		if d.Lost && d.State != Held && !now.Lost && d.Node == p.node && d.Resource == p.resource {
			return true
		}
	}
	return false
}

// checkLost says whether a device lost its units in turn: it had to make room,
// and who is worse to lose did not give way before it.
func checkLost(t *rapid.T, before, after *Snapshot, uid string) {
	was, _ := before.Device(uid)
	p := before.pool(was.Node, was.Resource)
	if p.over() == 0 || before.at(was.Node).doubted {
		t.Fatalf("%s is lost where all is served\n%s", uid, shown(before))
	}
	if now := after.pool(was.Node, was.Resource); now != nil && now.free() >= was.Units-was.Running {
		t.Fatalf("%s is lost, and %d are free\n%s", uid, now.free(), shown(before))
	}
	for _, other := range p.devices {
		now, _ := after.Device(other.UID)
		if !other.Lost && losesFirst(other, &was) < 0 && now.Node == was.Node && !now.Lost && other.Units >= was.Units {
			t.Fatalf("%s is lost before %s\n%s", uid, other.UID, shown(before))
		}
	}
}

// TestAmong compares a request that some nodes do not count for with the same one in a
// cluster without them.
func TestAmong(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		c := clusters(false).Draw(t, "cluster")
		counts := func(name string) bool { return name == "a" || name == "c" }
		some := cluster{request: c.request}
		for _, n := range c.nodes {
			if counts(n.Name) {
				some.nodes = append(some.nodes, n)
			}
		}
		for _, d := range c.devices {
			if counts(d.Node) {
				some.devices = append(some.devices, d)
			}
		}
		some.request.Effort, c.request.Effort = -1, -1
		c.request.Among = counts
		want, wantErr := Decide(some.snapshot(), some.request)
		got, err := Decide(c.snapshot(), c.request)
		if !reflect.DeepEqual(want, got) || fmt.Sprint(wantErr) != fmt.Sprint(err) {
			t.Fatalf("%+v %v, want %+v %v\n%s", got, err, want, wantErr, shown(c.snapshot()))
		}
		c.request.Effort = 0
		if got, err := Decide(c.snapshot(), c.request); err == nil && !counts(got.Node) {
			t.Fatalf("%s does not count\n%s", got.Node, shown(c.snapshot()))
		}
	})
}

// TestNeverPanics feeds nodes, devices and requests of any shape: what is decided
// is sound all the same.
func TestNeverPanics(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "c"})
	units := rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, 2, 3, 8, math.MaxInt64})
	resource := rapid.SampledFrom([]gpu.ResourceName{"", h200, l40s})
	often.Check(t, func(t *rapid.T) {
		var nodes []Node
		for range rapid.IntRange(0, 4).Draw(t, "nodes") {
			n := Node{Name: word.Draw(t, "name"), Closed: rapid.IntRange(0, 4).Draw(t, "closed") == 0, Doubted: rapid.IntRange(0, 4).Draw(t, "doubted") == 0}
			for range rapid.IntRange(0, 3).Draw(t, "serves") {
				n.Serves = append(n.Serves, Served{resource.Draw(t, "resource"), units.Draw(t, "units"), units.Draw(t, "raw"), rapid.SliceOfN(units, 0, 3).Draw(t, "numa")})
			}
			nodes = append(nodes, n)
		}
		var devices []Device
		for range rapid.IntRange(0, 5).Draw(t, "devices") {
			devices = append(devices, Device{
				UID: word.Draw(t, "uid"), Resource: resource.Draw(t, "resource"), Units: units.Draw(t, "units"), Node: word.Draw(t, "on"),
				State: State(rapid.Uint8().Draw(t, "state")), Lost: rapid.Bool().Draw(t, "lost"), Running: units.Draw(t, "running"),
			})
		}
		r := Request{Effort: rapid.IntRange(-1, 300).Draw(t, "effort")}
		for range rapid.IntRange(0, 3).Draw(t, "set") {
			r.Set = append(r.Set, Member{word.Draw(t, "uid"), resource.Draw(t, "resource"), units.Draw(t, "units")})
		}
		s := New(nodes, devices)
		got := Simulate(s, Drain(word.Draw(t, "drained")), r, 3)
		if d, err := Decide(s, r); err != nil {
			_ = err.Error()
		} else if err := checkSound(s, r, d); err != nil {
			t.Fatalf("%+v: %v\n%s", d, err, shown(s))
		}
		if full := (*Refusal)(nil); errors.As(got.Err, &full) {
			_ = full.ForTenant()
		}
	})
}
