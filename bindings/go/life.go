package gannet

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// life is what indexes, buffers and streams outside of Go's heap have in common: calls begin on them
// until they are closed, closing waits for calls that run, and freeing happens once.
type life struct {
	mutex     sync.Mutex // between closed and the beginning of calls
	closed    bool
	calls     sync.WaitGroup
	freed     sync.Once
	callbacks map[uint64]int // goroutines that run a callback of a call, and how many of them deep
}

// enter begins a call, unless what it is on is closed; leave ends it.
func (l *life) enter() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.calls.Add(1)
	return nil
}

func (l *life) leave() { l.calls.Done() }

// end closes, waits for the calls that run, and frees.
func (l *life) end(free func()) {
	l.mutex.Lock()
	l.closed = true
	l.mutex.Unlock()
	l.calls.Wait() // no call begins any more
	l.freed.Do(free)
}

// duringCallback runs code of the caller in the middle of a call. A life may be nil.
func (l *life) duringCallback(run func()) {
	if l == nil {
		run()
		return
	}
	number := goroutine()
	l.mutex.Lock()
	if l.callbacks == nil {
		l.callbacks = map[uint64]int{}
	}
	l.callbacks[number]++
	l.mutex.Unlock()
	defer func() {
		l.mutex.Lock()
		if l.callbacks[number]--; l.callbacks[number] == 0 {
			delete(l.callbacks, number)
		}
		l.mutex.Unlock()
	}()
	run()
}

// insideCallback says whether this goroutine runs a callback of a call, which closing would wait for.
func (l *life) insideCallback() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.callbacks) > 0 && l.callbacks[goroutine()] > 0
}

// goroutine is the number of the calling goroutine, as stack traces begin with it ("goroutine 7 ["), or 0
// if a later Go writes them otherwise.
func goroutine() uint64 {
	var trace [64]byte
	text := string(trace[:runtime.Stack(trace[:], false)])
	text, _ = strings.CutPrefix(text, "goroutine ")
	text, _, _ = strings.Cut(text, " ")
	number, _ := strconv.ParseUint(text, 10, 64)
	return number
}
