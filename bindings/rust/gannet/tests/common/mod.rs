//! What the tests share.
#![allow(dead_code)] // Each test file uses a part of it.

pub mod folder;

use gannet::{Bf16, BuildParams, Element, Index, IndexParams, Matrix, F16};

/// SplitMix64: the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whole numbers from `low` up to `high`, which every element holds exactly.
    pub fn whole(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }

    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// An element that takes small whole numbers.
pub trait Whole: Element {
    const LOW: i64;
    fn of(value: i64) -> Self;
    fn value(self) -> f64;
}

macro_rules! whole {
    ($($element:ty, $low:expr, $of:expr, $value:expr;)+) => {$(
        impl Whole for $element {
            const LOW: i64 = $low;
            fn of(value: i64) -> Self {
                $of(value)
            }
            fn value(self) -> f64 {
                $value(self)
            }
        }
    )+};
}
whole! {
    f32, -100, |value| value as f32, f64::from;
    F16, -100, |value| F16::from_f32(value as f32), |value: F16| f64::from(value.to_f32());
    Bf16, -100, |value| Bf16::from_f32(value as f32), |value: Bf16| f64::from(value.to_f32());
    i8, -100, |value| value as i8, f64::from;
    u8, 0, |value| value as u8, f64::from;
}

pub fn whole_numbers<T: Whole>(seed: u64, count: usize) -> Vec<T> {
    let mut random = Random(seed);
    (0..count).map(|_| T::of(random.whole(T::LOW, 100))).collect()
}

pub fn units(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.unit()).collect()
}

pub fn built<T: Element>(data: &[T], dim: usize) -> Index<'static> {
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    index.build(Matrix::new(data, dim).unwrap(), &BuildParams::new()).unwrap();
    index
}

/// Share of `truth` that `found` holds, query by query.
pub fn recall(found: &[u64], truth: &[u64], k: usize) -> f64 {
    let hits = found.chunks(k).zip(truth.chunks(k));
    let hits: usize = hits.map(|(f, t)| f.iter().filter(|id| t.contains(id)).count()).sum();
    hits as f64 / truth.len() as f64
}
