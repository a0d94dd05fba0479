package cluster

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// localPath says where a path of a container is on this machine.
type localPath struct{ inside, outside string }

// localPaths are the paths of one container, the longest first.
type localPaths []localPath

// localPaths returns where the container's mounts and its termination message
// are. There is no mount namespace that would put them where the pod says.
func (c *container) localPaths(pod *corev1.Pod) localPaths {
	list := localPaths{{c.spec.TerminationMessagePath, c.terminationFile()}}
	for _, m := range c.spec.VolumeMounts {
		v, ok := volumeOf(pod, m.Name)
		if !ok {
			continue
		}
		list = append(list, localPath{path.Clean(m.MountPath), filepath.Join(c.sandbox.volumeDir(v), m.SubPath)})
	}
	list = slices.DeleteFunc(list, func(p localPath) bool { return p.inside == "" || p.inside == "/" })
	slices.SortFunc(list, func(a, b localPath) int { return cmp.Compare(len(b.inside), len(a.inside)) })
	return list
}

// find returns where a mount is.
func (l localPaths) find(mount string) (string, bool) {
	for _, p := range l {
		if p.inside == mount {
			return p.outside, true
		}
	}
	return "", false
}

// rewrite replaces every path in a text that is one of the list, or below one.
// A path begins where a word does, or a value ("--file=/path", "a:/path,/path").
func (l localPaths) rewrite(text string) string {
	const begins, ends = "=:,; \t\n\"'", "/:,; \t\n\"'"
	var out strings.Builder
	for i := 0; i < len(text); {
		if i > 0 && !strings.ContainsRune(begins, rune(text[i-1])) {
			out.WriteByte(text[i])
			i++
			continue
		}
		rest := text[i:]
		at := slices.IndexFunc(l, func(p localPath) bool {
			after, ok := strings.CutPrefix(rest, p.inside)
			return ok && (after == "" || strings.ContainsRune(ends, rune(after[0])))
		})
		if at < 0 {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteString(l[at].outside)
		i += len(l[at].inside)
	}
	return out.String()
}
