package discover

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls do for 0..n-1 on as many goroutines as there are CPUs. Reading
// sysfs is all system calls, and a server with vGPUs has hundreds of functions.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}
