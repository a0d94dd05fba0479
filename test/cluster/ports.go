package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken in blocks, below the range from which Linux gives ports to
// outgoing connections. A block belongs to whoever listens on its first port,
// so that two clusters that start at once never take the same ports, and a
// block is free again when its owner is gone, however it went.
const (
	blockSize = 16
	firstPort = 20000
	lastPort  = 32000
)

// ports is a block of ports of 127.0.0.1.
type ports struct {
	owner net.Listener // on the first port
	next  int
	last  int
}

// reservePorts takes a block of which all ports are free now.
func reservePorts() (*ports, error) {
	const tries = 200
	var last error
	for range tries {
		first := firstPort + rand.IntN((lastPort-firstPort)/blockSize)*blockSize
		p, err := claim(first)
		if err == nil {
			return p, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find %d free ports in a row between %d and %d: %w", blockSize, firstPort, lastPort, last)
}

func claim(first int) (*ports, error) {
	owner, err := listen(first)
	if err != nil {
		return nil, err
	}
	for port := first + 1; port < first+blockSize; port++ {
		l, err := listen(port)
		if err != nil {
			return nil, errors.Join(err, owner.Close())
		}
		if err := l.Close(); err != nil {
			return nil, errors.Join(err, owner.Close())
		}
	}
	return &ports{owner: owner, next: first + 1, last: first + blockSize - 1}, nil
}

// take returns a port that was not taken before. A cluster needs fewer than a
// block has.
func (p *ports) take() int {
	if p.next > p.last {
		panic("cluster: a block of ports is too small")
	}
	p.next++
	return p.next - 1
}

func (p *ports) release() error { return p.owner.Close() }

func listen(port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", loopback(port))
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
