//! Builds an index over a file of vectors, and searches it for the first three of them.
//!
//!     cargo run --release -- vectors.u8bin
//!     cargo run --release -- vectors.fbin
//!
//! Such a file holds the number of rows and of columns as two 32-bit integers, then the rows: bytes
//! in a .u8bin, 32-bit floats in a .fbin, all little endian.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use gannet::{BuildParams, Element, Index, IndexParams, Matrix, SearchParams};

const QUERIES: usize = 3;
const K: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: quickstart FILE.u8bin | FILE.fbin")?;
    let file = fs::read(&path)?;
    let (rows, file) = take_u32(&file)?;
    let (dim, data) = take_u32(file)?;
    println!("gannet {}: {rows} rows of {dim} columns", gannet::version());

    match Path::new(&path).extension().and_then(|extension| extension.to_str()) {
        Some("u8bin") => run(data, rows, dim),
        Some("fbin") => {
            let floats: Vec<f32> = data
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect();
            run(&floats, rows, dim)
        }
        _ => Err("the file's name must end in .u8bin or .fbin".into()),
    }
}

/// The number at the front, and what follows it.
fn take_u32(file: &[u8]) -> Result<(usize, &[u8]), Box<dyn Error>> {
    let (number, rest) = file.split_first_chunk().ok_or("the file is too short")?;
    Ok((usize::try_from(u32::from_le_bytes(*number))?, rest))
}

fn run<T: Element>(data: &[T], rows: usize, dim: usize) -> Result<(), Box<dyn Error>> {
    let all = Matrix::strided(data, rows, dim, dim)?;

    // The rows stay where they are; the compiler sees to it that they outlive the index.
    let index = Index::new(&IndexParams::new(dim))?;
    index.build_borrowed(all, None, &BuildParams::new())?;
    println!("built in {:.1} s", index.info()?.build_seconds);

    let queries = Matrix::strided(data, rows.min(QUERIES), dim, dim)?;
    let found = index.search(queries, K, &SearchParams::new())?;
    for (query, neighbors) in found.iter().enumerate() {
        println!("row {query}:");
        for near in neighbors {
            println!("  row {:>8} at distance {}", near.id, near.distance);
        }
    }

    let exact = index.search_exact(queries, K, &SearchParams::new())?;
    let (mut hits, mut all) = (0, 0);
    for (near, true_near) in found.iter().zip(exact.iter()) {
        hits += near.ids().iter().filter(|id| true_near.ids().contains(id)).count();
        all += true_near.ids().len();
    }
    println!("{hits} of {all} true neighbours found");
    Ok(())
}
