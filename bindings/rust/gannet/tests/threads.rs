//! One index, many threads.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{built, units};
use gannet::*;

#[test]
fn everything_may_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<Index<'static>>();
    both::<Context>();
    both::<ContextParams>();
    both::<Monitor>();
    both::<IndexParams>();
    both::<BuildParams<'static>>();
    both::<SearchParams<'static>>();
    both::<KnnParams<'static>>();
    both::<Matrix<'static, F16>>();
    both::<Results>();
    both::<ResultsMut<'static>>();
    both::<Graph>();
    both::<KnnGraph>();
    both::<Error>();
}

#[test]
fn sixty_four_threads_get_the_serial_answers() {
    let (dim, k, count) = (16, 10, 40);
    let index = Arc::new(built(&units(1, 5000 * dim), dim));
    let queries = Arc::new(units(2, count * dim));
    let serial = {
        let params = SearchParams::new().threads(1);
        Arc::new(index.search(Matrix::new(&queries, dim).unwrap(), k, &params).unwrap())
    };
    let threads: Vec<_> = (0..64)
        .map(|number| {
            let (index, queries) = (Arc::clone(&index), Arc::clone(&queries));
            let serial = Arc::clone(&serial);
            thread::spawn(move || {
                let all = Matrix::new(&queries, dim).unwrap();
                let params = SearchParams::new().threads(1 + number % 3);
                let found = index.search(all, k, &params).unwrap();
                assert_eq!(found.ids(), serial.ids());
                assert_eq!(found.distances(), serial.distances());
                for q in 0..count {
                    let one = Matrix::one(all.row(q).unwrap()).unwrap();
                    let found = index.search(one, k, &SearchParams::new()).unwrap();
                    assert_eq!(found.ids(), serial.get(q).unwrap().ids());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The number that the system has for the calling thread.
fn thread_number() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What a thread of this process has computed, in hundredths of a second: other processes cannot lengthen it.
fn time_of(thread: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Rows that take far longer to build than a test waits.
fn long_build() -> (Vec<f32>, usize) {
    (units(1, 100_000 * 64), 64)
}

#[test]
fn a_build_is_cancelled_from_another_thread() {
    let (data, dim) = long_build();
    let monitor = Arc::new(Monitor::new().unwrap());
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let canceller = {
        let monitor = Arc::clone(&monitor);
        let builder = thread_number();
        thread::spawn(move || {
            while monitor.progress().unwrap().step == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!monitor.progress().unwrap().phase.is_empty());
            thread::sleep(Duration::from_millis(100));
            monitor.cancel();
            time_of(&builder)
        })
    };
    let params = BuildParams::new().monitor(&monitor);
    let error = index.build(Matrix::new(&data, dim).unwrap(), &params).unwrap_err();
    let late = time_of(&thread_number()) - canceller.join().unwrap();
    assert_eq!(error.status(), Status::Cancelled);
    // The library promises 100 ms; a build that nobody ends computes for seconds.
    assert!(late < 50, "the thread computed for {late} hundredths of a second after the wish");
    assert!(!index.info().unwrap().built);

    // Cancelling stays until it is taken back; then the index can be built.
    let few = Matrix::new(&data[..100 * dim], dim).unwrap();
    assert_eq!(index.build(few, &params).unwrap_err().status(), Status::Cancelled);
    monitor.reset();
    index.build(few, &params).unwrap();
    assert_eq!(monitor.progress().unwrap().fraction, 1.0);
}

#[test]
fn a_deadline_ends_a_build() {
    let (data, dim) = long_build();
    let monitor = Monitor::new().unwrap();
    monitor.set_deadline(Duration::from_millis(50));
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let params = BuildParams::new().monitor(&monitor);
    let error = index.build(Matrix::new(&data, dim).unwrap(), &params).unwrap_err();
    assert_eq!(error.status(), Status::Deadline);

    monitor.clear_deadline();
    let few = Matrix::new(&data[..100 * dim], dim).unwrap();
    index.build(few, &params).unwrap();
    monitor.set_deadline(Duration::ZERO);
    let params = SearchParams::new().monitor(&monitor);
    assert_eq!(index.search(few, 1, &params).unwrap_err().status(), Status::Deadline);
}

#[test]
fn searches_and_k_nn_graphs_are_cancelled() {
    let data = units(1, 500 * 8);
    let rows = Matrix::new(&data, 8).unwrap();
    let index = built(&data, 8);
    let monitor = Monitor::new().unwrap();
    monitor.cancel();
    let params = SearchParams::new().monitor(&monitor);
    assert_eq!(index.search(rows, 1, &params).unwrap_err().status(), Status::Cancelled);
    assert_eq!(index.search_exact(rows, 1, &params).unwrap_err().status(), Status::Cancelled);
    let error = knn_graph(rows, &KnnParams::new(4).monitor(&monitor)).unwrap_err();
    assert_eq!(error.status(), Status::Cancelled);
}

#[test]
fn a_second_build_is_busy_and_searches_wait_for_none() {
    let (data, dim) = long_build();
    let monitor = Monitor::new().unwrap();
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let rows = Matrix::new(&data, dim).unwrap();
    thread::scope(|scope| {
        let params = BuildParams::new().monitor(&monitor);
        let index = &index;
        let first = scope.spawn(move || index.build(rows, &params).unwrap_err().status());
        while monitor.progress().unwrap().step == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let second = index.build(rows, &BuildParams::new()).unwrap_err();
        let query = Matrix::one(&data[..dim]).unwrap();
        let search = index.search(query, 1, &SearchParams::new()).unwrap_err();
        monitor.cancel();
        assert_eq!(first.join().unwrap(), Status::Cancelled);
        assert_eq!(second.status(), Status::Busy);
        assert_eq!(search.status(), Status::State);
    });
}

#[test]
fn a_context_caps_threads() {
    let context = Context::new(&ContextParams::new().threads_max(1)).unwrap();
    let data = units(1, 500 * 8);
    let rows = Matrix::new(&data, 8).unwrap();
    let index = Index::with_context(&context, &IndexParams::new(8)).unwrap();
    let alike = knn_graph(rows, &KnnParams::new(4).context(&context)).unwrap();
    drop(context);
    index.build(rows, &BuildParams::new()).unwrap();
    assert_eq!(alike, knn_graph(rows, &KnnParams::new(4)).unwrap());
    assert_eq!(index.search(rows, 1, &SearchParams::new()).unwrap().rows(), 500);
}
