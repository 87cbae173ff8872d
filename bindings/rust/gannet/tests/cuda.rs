//! On a CUDA device: placement, memory of the device, and searches that are queued. Without one every test
//! says so and ends; where GANNET_NEED_GPU is set that is a failure.

mod common;

use common::{recall, units};
use gannet::cuda::{
    knn_graph_on_device, DeviceBuffer, DeviceMatrix, DeviceResults, DeviceResultsMut, Stream,
};
use gannet::*;

const GPU: Device = Device::Cuda(0);
const DIM: usize = 32;

/// False without a device.
fn there_is_a_gpu() -> bool {
    let devices = device_count().unwrap();
    if devices.count > 1 {
        return true;
    }
    assert!(std::env::var_os("GANNET_NEED_GPU").is_none(), "no CUDA device: {}", devices.reason);
    eprintln!("skipped, no CUDA device: {}", devices.reason);
    false
}

fn build(data: &[f32], params: &BuildParams<'_>) -> Index<'static> {
    let index = Index::new(&IndexParams::new(DIM)).unwrap();
    index.build(Matrix::new(data, DIM).unwrap(), params).unwrap();
    index
}

#[test]
fn buffers_hold_what_they_are_given() {
    if !there_is_a_gpu() {
        return;
    }
    let data = units(1, 100_000);
    let mut buffer = DeviceBuffer::from_slice(GPU, &data).unwrap();
    assert_eq!((buffer.len(), buffer.device()), (100_000, GPU));
    assert_eq!(buffer.read().unwrap(), data);
    let other = units(2, 100_000);
    buffer.write(&other).unwrap();
    assert_eq!(buffer.read().unwrap(), other);
    assert_eq!(buffer.write(&other[1..]).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(buffer.matrix(7).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(DeviceBuffer::<u64>::zeroed(GPU, 5).unwrap().read().unwrap(), [0; 5]);
    assert!(DeviceBuffer::<u8>::zeroed(GPU, 0).unwrap().is_empty());
    let error = DeviceBuffer::<u64>::zeroed(GPU, 1 << 50).unwrap_err();
    assert_eq!(error.status(), Status::DeviceNoMemory);
    assert!(error.cuda_error().is_some());
    // From other threads as well.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(buffer.read().unwrap(), other));
    });
}

#[test]
fn an_index_is_placed_and_evicted() {
    if !there_is_a_gpu() {
        return;
    }
    let (data, queries) = (units(3, 5000 * DIM), units(4, 50 * DIM));
    let queries = Matrix::new(&queries, DIM).unwrap();
    let index = build(&data, &BuildParams::new());
    let on_gpu = SearchParams::new().device(GPU);
    let exact = index.search_exact(queries, 10, &SearchParams::new()).unwrap();
    for _ in 0..2 {
        index.place(GPU, Some(&Monitor::new().unwrap())).unwrap();
        let found = index.search(queries, 10, &on_gpu).unwrap();
        assert!(recall(found.ids(), exact.ids(), 10) > 0.9);
        index.evict(GPU).unwrap();
    }
    let monitor = Monitor::new().unwrap();
    monitor.cancel();
    assert_eq!(index.place(GPU, Some(&monitor)).unwrap_err().status(), Status::Cancelled);
    let found = index.search_exact(queries, 10, &on_gpu).unwrap();
    assert_eq!((found.ids(), found.distances()), (exact.ids(), exact.distances()));
}

#[test]
fn searches_in_device_memory_answer_as_from_the_host() {
    if !there_is_a_gpu() {
        return;
    }
    let (data, queries) = (units(5, 6000 * DIM), units(6, 300 * DIM));
    let index = build(&data, &BuildParams::new().device(GPU));
    let (k, params) = (10, SearchParams::new().procedure(Procedure::TwoLists));
    let host = Matrix::new(&queries, DIM).unwrap();
    let wanted = index.search(host, k, &params.clone().device(GPU)).unwrap();
    let stats = wanted.stats();
    assert_eq!((stats.procedure, stats.warps_per_query), (Some(Procedure::TwoLists), 1));
    let exact = index.search_exact(host, k, &SearchParams::new()).unwrap();
    assert!(recall(wanted.ids(), exact.ids(), k) > 0.9);

    let buffer = DeviceBuffer::from_slice(GPU, &queries).unwrap();
    let mut found = DeviceResults::new(GPU, 300, k).unwrap();
    let stats = index
        .search_on_device(buffer.matrix(DIM).unwrap(), &mut found.as_mut().unwrap(), &params)
        .unwrap();
    assert!(stats.distance_count > 0);
    assert_eq!(found.read().unwrap().ids(), wanted.ids());
    index
        .search_exact_on_device(
            buffer.matrix(DIM).unwrap(),
            &mut found.as_mut().unwrap(),
            &SearchParams::new(),
        )
        .unwrap();
    let read = found.read().unwrap();
    assert_eq!((read.ids(), read.distances()), (exact.ids(), exact.distances()));
    assert_eq!(read.counts(), vec![k as u32; 300]);

    // The wrong number of results is an error of the library.
    let mut few = DeviceResults::new(GPU, 299, k).unwrap();
    let error = index
        .search_on_device(buffer.matrix(DIM).unwrap(), &mut few.as_mut().unwrap(), &params)
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn queued_searches_give_their_buffers_back() {
    if !there_is_a_gpu() {
        return;
    }
    let (data, queries) = (units(7, 6000 * DIM), units(8, 300 * DIM));
    let index = build(&data, &BuildParams::new().device(GPU));
    let (k, params) = (10, SearchParams::new().procedure(Procedure::TwoLists));
    let host = Matrix::new(&queries, DIM).unwrap();
    let wanted = index.search(host, k, &params.clone().device(GPU)).unwrap();
    let stream = Stream::new(GPU).unwrap();
    let mut buffer = DeviceBuffer::from_slice(GPU, &queries).unwrap();
    let mut found = DeviceResults::new(GPU, 300, k).unwrap();
    for _ in 0..20 {
        let queued = index.search_queued(buffer, DIM, found, &params, &stream).unwrap();
        (buffer, found) = queued.wait().unwrap();
        assert_eq!(found.read().unwrap().ids(), wanted.ids());
    }
    // Dropped, forgotten, and beyond the life of the index: nothing is freed that is still in use.
    drop(index.search_queued(buffer, DIM, found, &params, &stream).unwrap());
    let buffer = DeviceBuffer::from_slice(GPU, &queries).unwrap();
    let found = DeviceResults::new(GPU, 300, k).unwrap();
    std::mem::forget(index.search_queued(buffer, DIM, found, &params, &stream).unwrap());
    let buffer = DeviceBuffer::from_slice(GPU, &queries).unwrap();
    let found = DeviceResults::new(GPU, 300, k).unwrap();
    let queued = index.search_exact_queued(buffer, DIM, found, &params, &stream).unwrap();
    let exact = index.search_exact(host, k, &SearchParams::new()).unwrap();
    drop((index, stream));
    let (_, found) = queued.wait().unwrap();
    assert_eq!(found.read().unwrap().ids(), exact.ids());
}

#[test]
fn a_query_with_nan_is_told_when_the_stream_is_there() {
    if !there_is_a_gpu() {
        return;
    }
    let index = build(&units(9, 5000 * DIM), &BuildParams::new().device(GPU));
    let mut queries = units(10, 3 * DIM);
    queries[DIM + 5] = f32::NAN;
    let stream = Stream::new(GPU).unwrap();
    let buffer = DeviceBuffer::from_slice(GPU, &queries).unwrap();
    let found = DeviceResults::new(GPU, 3, 2).unwrap();
    let queued = index.search_queued(buffer, DIM, found, &SearchParams::new(), &stream).unwrap();
    let found = queued.wait().unwrap().1.read().unwrap();
    let statuses: Vec<_> = found.statuses().iter().map(|status| status.result()).collect();
    assert_eq!(statuses, [Ok(()), Err(Status::NotFinite), Ok(())]);
    assert_eq!(found.counts(), [2, 0, 2]);
}

#[test]
fn pointers_of_other_libraries_are_taken() {
    if !there_is_a_gpu() {
        return;
    }
    // Rows of 32 in a buffer with 8 more behind each, as another library may have them.
    let (stride, data) = (DIM + 8, units(11, 5000 * (DIM + 8)));
    let buffer = DeviceBuffer::from_slice(GPU, &data).unwrap();
    // SAFETY: the buffer holds the rows and outlives the view.
    let rows = unsafe { DeviceMatrix::new(GPU, buffer.as_ptr(), 5000, DIM, stride) }.unwrap();
    let index = Index::new(&IndexParams::new(DIM)).unwrap();
    let ids: Vec<u64> = (0..5000).map(|row| row * 3).collect();
    index.build_from_device(rows, Some(&ids), &BuildParams::new().device(GPU)).unwrap();
    assert_eq!(index.ids().unwrap(), ids);
    assert_eq!(index.get::<f32>(9).unwrap().unwrap(), data[3 * stride..3 * stride + DIM]);

    let stream = Stream::new(GPU).unwrap();
    let mut found = DeviceBuffer::<u64>::zeroed(GPU, 10).unwrap();
    // SAFETY: the stream is waited for before the buffers are used.
    unsafe {
        let queries = DeviceMatrix::new(GPU, buffer.as_ptr(), 10, DIM, stride).unwrap();
        let mut results = DeviceResultsMut::new(GPU, 10, 1, found.as_mut_ptr()).unwrap();
        let params = SearchParams::new();
        index.search_exact_on_stream(queries, &mut results, &params, stream.as_raw()).unwrap();
    }
    stream.wait().unwrap();
    assert_eq!(found.read().unwrap(), ids[..10]);
    let graph = knn_graph_on_device(rows, &KnnParams::new(4).method(KnnMethod::Exact)).unwrap();
    assert_eq!(graph.neighbors().len(), 4 * 5000);

    // Host memory is refused before anything is read.
    let host = units(12, DIM);
    // SAFETY: not kept, but the library looks before it reads.
    let wrong = unsafe { DeviceMatrix::new(GPU, host.as_ptr(), 1, DIM, DIM) }.unwrap();
    let mut one = DeviceResults::new(GPU, 1, 1).unwrap();
    let error = index
        .search_on_device(wrong, &mut one.as_mut().unwrap(), &SearchParams::new())
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument, "{error}");
}

#[test]
fn calibration_queries_come_from_the_device() {
    if !there_is_a_gpu() {
        return;
    }
    let sample = DeviceBuffer::from_slice(GPU, &units(13, 200 * DIM)).unwrap();
    let params = BuildParams::new().device(GPU).calibration_on_device(sample.matrix(DIM).unwrap());
    let index = build(&units(14, 5000 * DIM), &params);
    assert!(index.info().unwrap().recall_max > 0.5);
}

#[test]
fn device_types_may_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<DeviceBuffer<f32>>();
    both::<DeviceMatrix<'static, f32>>();
    both::<DeviceResults>();
    both::<DeviceResultsMut<'static>>();
    both::<Stream>();
    both::<cuda::Queued<f32>>();
}
