//! The ten tasks of README.md in Rust.

use gannet::{
    estimate, BuildParams, ElementType, Index, IndexParams, Matrix, Metric, Monitor, OpenParams,
    Results, SaveParams, SearchParams, Status,
};
use std::time::Duration;

const ROWS: usize = 20_000;
const DIM: usize = 32;
const QUERIES: usize = 200;
const K: usize = 10;

fn random(count: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// The share of the true neighbours that was found.
fn recall(found: &Results, truth: &Results) -> f64 {
    let hits: usize = found
        .iter()
        .zip(truth.iter())
        .map(|(a, b)| a.ids().iter().filter(|id| b.ids().contains(id)).count())
        .sum();
    hits as f64 / (QUERIES * K) as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 1: it is there
    println!("{}", gannet::build_info());

    // 2: the ten nearest of some rows
    let (data, asked) = (random(ROWS * DIM, 1), random(QUERIES * DIM, 2));
    let (rows, queries) = (Matrix::new(&data, DIM)?, Matrix::new(&asked, DIM)?);
    let index = Index::new(&IndexParams::new(DIM))?;
    index.build(rows, &BuildParams::new())?;
    let found = index.search(queries, K, &SearchParams::new())?;

    // 3: how many of the true neighbours are found, and more of them
    let truth = index.search_exact(queries, K, &SearchParams::new())?;
    let better = index.search(queries, K, &SearchParams::new().recall(0.99))?;
    println!("recall {:.3}, asked for .99: {:.3}", recall(&found, &truth), recall(&better, &truth));
    assert!(recall(&found, &truth) > 0.93);

    // 4: saved here, opened elsewhere
    let path = std::env::temp_dir().join(format!("points{}.gannet", std::process::id()));
    index.save(&path, &SaveParams::new())?;
    let opened = Index::open(&path, &OpenParams::new())?;
    assert_eq!(recall(&opened.search(queries, K, &SearchParams::new())?, &found), 1.0);
    std::fs::remove_file(&path)?;

    // 5: cosine, and half the memory
    let halves =
        Index::new(&IndexParams::new(DIM).metric(Metric::Cosine).element(ElementType::F16))?;
    halves.build(rows, &BuildParams::new())?;
    let seventh = Matrix::new(&data[7 * DIM..8 * DIM], DIM)?;
    assert_eq!(halves.search(seventh, 1, &SearchParams::new())?.ids(), [7]);

    // 6: names of rows
    let names: Vec<u64> = (0..ROWS as u64).map(|row| 1_000_000_000_000 + row).collect();
    let named = Index::new(&IndexParams::new(DIM))?;
    named.build_with_ids(rows, &names, &BuildParams::new())?;
    assert_eq!(named.search(seventh, 1, &SearchParams::new())?.ids(), [names[7]]);
    assert_eq!(named.get::<f32>(names[7])?.as_deref(), Some(&data[7 * DIM..8 * DIM]));

    // 7: what a build takes, beforehand
    let plan = estimate(&IndexParams::new(768), 1_000_000, ElementType::F32, &BuildParams::new())?;
    println!("{} MiB at most, about {:.0} s", plan.peak_bytes >> 20, plan.seconds);

    // 8: a long build, watched and stopped
    let monitor = Monitor::new()?;
    let many = random(200_000 * 64, 3);
    let long = Index::new(&IndexParams::new(64))?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            println!("{:?}", monitor.progress());
            monitor.cancel();
        });
        let stopped =
            long.build(Matrix::new(&many, 64).unwrap(), &BuildParams::new().monitor(&monitor));
        assert_eq!(stopped.unwrap_err().status(), Status::Cancelled);
    });

    // 9: searches from many threads
    std::thread::scope(|scope| {
        for part in asked.chunks(QUERIES / 8 * DIM) {
            let index = &index;
            scope.spawn(move || {
                index.search(Matrix::new(part, DIM).unwrap(), K, &SearchParams::new()).unwrap()
            });
        }
    });

    // 10: wrong input says what is wrong
    println!(
        "{}",
        index.search(Matrix::new(&data[1..DIM], DIM - 1)?, K, &SearchParams::new()).unwrap_err()
    );
    let found = index.search(Matrix::new(&[f32::NAN; DIM], DIM)?, K, &SearchParams::new())?;
    println!("{:?}", found.statuses()[0].result());
    println!("tasks: Rust: 10");
    Ok(())
}
