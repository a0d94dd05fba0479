package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	mountRetry = 200 * time.Millisecond
	// refreshInterval is how often volumes are looked through: whether tokens
	// are about to end, and ConfigMaps and Secrets have changed.
	refreshInterval = 5 * time.Second
)

// mountAll writes the pod's volumes, as soon as all that they are made of exists.
func (b *sandbox) mountAll() bool {
	for last := ""; ; {
		err := errors.Join(b.makeDirs(), b.writeVolumes(b.stopping))
		if err == nil {
			return true
		}
		if text := err.Error(); text != last && b.stopping.Err() == nil {
			last = text
			b.kubelets.stack.note("kubelets", fmt.Errorf("mount the volumes of pod %s/%s: %w", b.namespace, b.name, err))
		}
		b.change()
		if !b.sleep(mountRetry) {
			return false
		}
	}
}

// refresh keeps the volumes up to date while the pod runs.
func (b *sandbox) refresh() {
	for b.sleep(refreshInterval) {
		if err := b.writeVolumes(b.stopping); err != nil && b.stopping.Err() == nil {
			b.kubelets.stack.note("kubelets", fmt.Errorf("refresh the volumes of pod %s/%s: %w", b.namespace, b.name, err))
		}
	}
}

// volumeDir returns the folder of a volume.
func (b *sandbox) volumeDir(v corev1.Volume) string {
	if v.HostPath != nil {
		return filepath.Join(b.kubelets.stack.nodes.root(b.node), v.HostPath.Path)
	}
	return filepath.Join(b.dir, "volumes", v.Name)
}

func (b *sandbox) writeVolumes(ctx context.Context) error {
	pod := b.latest()
	for _, v := range pod.Spec.Volumes {
		files, written, err := b.content(ctx, pod, v)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if v.HostPath != nil {
			continue
		}
		dir := b.volumeDir(v)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		if written {
			if err := writeFiles(dir, files); err != nil {
				return err
			}
		}
	}
	return nil
}

// content returns the files of a volume, by path. Those of some kinds are the
// pod's own.
func (b *sandbox) content(ctx context.Context, pod *corev1.Pod, v corev1.Volume) (files map[string][]byte, written bool, err error) {
	switch {
	case v.EmptyDir != nil:
		return nil, false, nil
	case v.HostPath != nil:
		if b.kubelets.stack.nodes.root(b.node) == "" {
			return nil, false, fmt.Errorf("node %s has no Root for hostPath %s", b.node, v.HostPath.Path)
		}
		return nil, false, nil
	case v.ConfigMap != nil:
		data, err := b.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Optional)
		return pick(data, v.ConfigMap.Items, v.ConfigMap.Optional, err)
	case v.Secret != nil:
		data, err := b.secret(ctx, v.Secret.SecretName, v.Secret.Optional)
		return pick(data, v.Secret.Items, v.Secret.Optional, err)
	case v.DownwardAPI != nil:
		files, err := b.downward(ctx, pod, v.DownwardAPI.Items)
		return files, true, err
	case v.Projected != nil:
		files := map[string][]byte{}
		for _, source := range v.Projected.Sources {
			part, err := b.projected(ctx, pod, v.Name, source)
			if err != nil {
				return nil, false, err
			}
			maps.Copy(files, part)
		}
		return files, true, nil
	default:
		return nil, false, errors.New("volumes of this kind are not played")
	}
}

func (b *sandbox) projected(ctx context.Context, pod *corev1.Pod, volume string, source corev1.VolumeProjection) (files map[string][]byte, err error) {
	switch {
	case source.ServiceAccountToken != nil:
		token, err := b.token(ctx, volume, source.ServiceAccountToken)
		return map[string][]byte{source.ServiceAccountToken.Path: token}, err
	case source.ConfigMap != nil:
		data, err := b.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		files, _, err = pick(data, source.ConfigMap.Items, source.ConfigMap.Optional, err)
		return files, err
	case source.Secret != nil:
		data, err := b.secret(ctx, source.Secret.Name, source.Secret.Optional)
		files, _, err = pick(data, source.Secret.Items, source.Secret.Optional, err)
		return files, err
	case source.DownwardAPI != nil:
		return b.downward(ctx, pod, source.DownwardAPI.Items)
	default:
		return nil, errors.New("a projected source of this kind is not played")
	}
}

func (b *sandbox) downward(ctx context.Context, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = b.field(pod, item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = b.resourceField(ctx, pod, "", item.ResourceFieldRef)
		}
		if err != nil {
			return nil, err
		}
		files[item.Path] = []byte(value)
	}
	return files, nil
}

// pick returns the files that are made of some keys, or of all.
func pick(data map[string][]byte, items []corev1.KeyToPath, optional *bool, err error) (files map[string][]byte, written bool, _ error) {
	if err != nil || len(items) == 0 {
		return data, true, err
	}
	files = map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !isTrue(optional) {
			return nil, false, fmt.Errorf("references non-existent key: %s", item.Key)
		}
		if ok {
			files[item.Path] = value
		}
	}
	return files, true, nil
}

// writeFiles makes a folder hold these files and no other. A file is replaced as
// a whole, so that nobody reads half of it.
func writeFiles(dir string, files map[string][]byte) error {
	for name, data := range files {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		next := filepath.Join(filepath.Dir(path), "..next-"+filepath.Base(path))
		if err := errors.Join(os.WriteFile(next, data, 0o600), os.Rename(next, path)); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if _, ok := files[filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))]; ok {
			return nil
		}
		return os.Remove(path)
	})
}
