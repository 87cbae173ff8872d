//! Builds an index on a CUDA device and searches it from host memory, from device memory, and on a stream.
//! Without a device it says so and ends with success.
//!
//!     cargo run --release --bin gpu

use gannet::cuda::{DeviceBuffer, DeviceResults, Stream};
use gannet::{
    device_count, device_info, BuildParams, Device, Index, IndexParams, Matrix, Results,
    SearchParams,
};

const ROWS: usize = 100_000;
const DIM: usize = 64;
const QUERIES: usize = 1000;
const K: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices = device_count()?;
    if devices.count == 1 {
        // the CPU
        println!("no CUDA device here: {}", devices.reason);
        return Ok(());
    }
    let gpu = Device::Cuda(0);
    let info = device_info(gpu)?;
    let (free, total) = (info.memory_free >> 20, info.memory_total >> 20);
    println!("{gpu}: {}, {free} of {total} MiB free", info.name);

    let (data, asked) = (random(ROWS * DIM, 1), random(QUERIES * DIM, 2));
    let index = Index::new(&IndexParams::new(DIM))?;
    index.build(Matrix::new(&data, DIM)?, &BuildParams::new().device(gpu))?;
    println!("{ROWS} rows built in {:.2} s", index.info()?.build_seconds);
    // The build has left its copy there already; an index that was opened or built elsewhere has none.
    index.place(gpu, None)?;

    let on_gpu = SearchParams::new().device(gpu);
    let found = index.search(Matrix::new(&asked, DIM)?, K, &on_gpu)?;
    let exact = index.search_exact(Matrix::new(&asked, DIM)?, K, &on_gpu)?;
    println!("from host memory: recall@{K} is {:.3}", recall(&found, &exact));

    // Vectors that are on the device anyway are searched there.
    let queries = DeviceBuffer::from_slice(gpu, &asked)?;
    let mut results = DeviceResults::new(gpu, QUERIES, K)?;
    let params = SearchParams::new();
    index.search_on_device(queries.matrix(DIM)?, &mut results.as_mut()?, &params)?;
    println!("in device memory: recall@{K} is {:.3}", recall(&results.read()?, &exact));

    // On a stream the search owns its buffers until it is waited for; meanwhile this thread is free.
    let stream = Stream::new(gpu)?;
    let queued = index.search_queued(queries, DIM, results, &params, &stream)?;
    let (_queries, results) = queued.wait()?;
    let share = recall(&results.read()?, &exact);
    println!("queued on a stream: recall@{K} is {share:.3}");

    index.evict(gpu)?; // the copy goes with the index, or earlier
    if share < 0.9 {
        return Err(format!("recall is {share:.3}").into());
    }
    Ok(())
}

fn random(count: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// The share of the exact neighbours that were found.
fn recall(found: &Results, exact: &Results) -> f64 {
    let pairs = found.iter().zip(exact);
    let hits: usize =
        pairs.map(|(f, e)| e.ids().iter().filter(|id| f.ids().contains(id)).count()).sum();
    hits as f64 / exact.ids().len() as f64
}
