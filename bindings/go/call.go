package gannet

// #include "bridge.h"
// #cgo noescape gn_monitor
// #cgo nocallback gn_monitor
// #cgo nocallback gn_progress
import "C"

import (
	"context"
	"runtime"
	"time"
)

// A goroutine inside C holds an operating system thread. Without a bound, 10,000 searching
// goroutines would make 10,000 threads; with it the rest wait as goroutines, which cost little.
// Builds have places of their own, so that many long builds do not keep short searches waiting.
var (
	searchPlaces = make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	buildPlaces  = make(chan struct{}, 4*runtime.GOMAXPROCS(0))
)

// How often progress is read.
const progressEvery = 50 * time.Millisecond

// call is one long C call: its place, its monitor, and the goroutines that watch it.
type call struct {
	ctx     context.Context
	places  chan struct{}
	monitor *C.ann_monitor // nil if nothing can cancel the call and no progress is wanted
	calmed  func()         // stops the watchers and waits for them; nil without a monitor
	error   C.ann_error
}

// begin waits for a place and sets up the watchers. If it succeeds, end must follow.
func (c *call) begin(ctx context.Context, places chan struct{}, progress func(Progress)) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	c.ctx, c.places = ctx, places
	if ctx.Done() == nil && progress == nil {
		return nil
	}
	if c.monitor = C.gn_monitor(&c.error); c.monitor == nil {
		<-places
		return failure(c.error.status, &c.error, nil)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// 0 would mean no deadline.
		C.ann_monitor_set_deadline(c.monitor, C.uint64_t(max(time.Until(deadline), 1)))
	}
	c.calmed = watch(ctx, c.monitor, progress)
	return nil
}

// endEarly lets go of everything before the call of C.
func (c *call) endEarly(err error) error {
	c.end(C.ANN_OK)
	return err
}

// beginOn begins a call that runs on an index and enters that; without an error the caller leaves it.
func (c *call) beginOn(ctx context.Context, x *Index, places chan struct{},
	progress func(Progress)) (*C.ann_index, error) {
	if x == nil || x.handle == nil {
		return nil, ErrClosed
	}
	if told := progress; told != nil {
		// A progress function may call Close, which would wait for the call that waits for it.
		progress = func(p Progress) { x.handle.duringCallback(func() { told(p) }) }
	}
	if err := c.begin(ctx, places, progress); err != nil {
		return nil, err
	}
	native, err := x.enter()
	if err != nil {
		c.end(C.ANN_OK)
	}
	return native, err
}

// end lets go of everything and makes the error.
func (c *call) end(status C.ann_status) error {
	if c.monitor != nil {
		c.calmed()
		C.ann_monitor_free(c.monitor)
	}
	<-c.places
	if status == C.ANN_CANCELLED && c.ctx.Err() == context.DeadlineExceeded {
		status = C.ANN_DEADLINE // the context's timer was first to end the call
	}
	return failure(status, &c.error, causeOf(c.ctx, status))
}

// watch cancels the monitor when the context ends, and reads progress. The returned function undoes it;
// nothing touches the monitor afterwards.
func watch(ctx context.Context, monitor *C.ann_monitor, progress func(Progress)) func() {
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.ann_monitor_cancel(monitor)
		close(cancelled)
	})
	quit, polled := make(chan struct{}), make(chan struct{})
	if progress != nil {
		go poll(monitor, progress, quit, polled)
	} else {
		close(polled)
	}
	return func() {
		if !stop() {
			<-cancelled
		}
		close(quit)
		<-polled
	}
}

// poll hands on the progress when it has changed, and once more at the end.
func poll(monitor *C.ann_monitor, progress func(Progress), quit, polled chan struct{}) {
	defer close(polled)
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	var last C.ann_progress
	for running := true; running; {
		select {
		case <-quit:
			running = false
		case <-ticker.C:
		}
		now := C.gn_progress(monitor)
		if now.step != 0 && (now.step != last.step || now.fraction != last.fraction) {
			progress(Progress{int(now.step), float64(now.fraction), C.GoString(now.phase)})
			last = now
		}
	}
}

// causeOf is the context's error, where the context ended the call.
func causeOf(ctx context.Context, status C.ann_status) error {
	switch status {
	case C.ANN_CANCELLED:
		return ctx.Err()
	case C.ANN_DEADLINE:
		// The library's clock may be a little ahead of the context's timer.
		return context.DeadlineExceeded
	}
	return nil
}

// ended is the error of a call that its context ended before it began.
func ended(ctx context.Context) error {
	status := C.ann_status(C.ANN_CANCELLED)
	if ctx.Err() == context.DeadlineExceeded {
		status = C.ANN_DEADLINE
	}
	return fail(status, ctx.Err(), "%v before the call began", ctx.Err())
}
