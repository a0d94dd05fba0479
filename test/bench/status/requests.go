package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// counter counts the requests of one client.
type counter struct {
	mu    sync.Mutex
	lists map[string]int // pages by what is listed
	more  int            // pages behind the first
	other []string
}

func (c *counter) add(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	if !query.Has("limit") {
		c.other = append(c.other, r.Method+" "+r.URL.Path)
		return
	}
	what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if selector := query.Get("fieldSelector") + query.Get("labelSelector"); selector != "" {
		what += "?" + selector
	}
	c.lists[what]++
	if query.Get("continue") != "" {
		c.more++
	}
}

// countRequests runs a command against a proxy, and prints what it asked for.
func countRequests(ctx context.Context, out io.Writer, config *rest.Config, argv []string) error {
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	count := counter{lists: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.add(r)
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "gpuctl-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(kubeconfig, server.URL); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", argv[0], err, output)
	}
	count.print(out)
	return nil
}

func (c *counter) print(out io.Writer) {
	all := len(c.lists) + c.more + len(c.other)
	fmt.Fprintf(out, "\ngpuctl status made %d requests: %d lists, %d further pages of them, %d others\n", all, len(c.lists), c.more, len(c.other))
	for _, what := range slices.Sorted(maps.Keys(c.lists)) {
		fmt.Fprintf(out, "%4d  %s\n", c.lists[what], what)
	}
	slices.Sort(c.other)
	for _, what := range c.other {
		fmt.Fprintf(out, "   1  %s\n", what)
	}
}

func writeKubeconfig(path, server string) error {
	const name = "bench"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: server}
	k.AuthInfos[name] = &api.AuthInfo{}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, path)
}
