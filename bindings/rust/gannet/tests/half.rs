//! Conversions of the 16-bit elements.

mod common;

use common::Random;
use gannet::{Bf16, F16};

#[test]
fn every_half_survives_the_way_to_f32_and_back() {
    for bits in 0..=u16::MAX {
        let (half, brain) = (F16::from_bits(bits), Bf16::from_bits(bits));
        if half.to_f32().is_nan() {
            assert!(F16::from_f32(half.to_f32()).to_f32().is_nan());
        } else {
            assert_eq!(F16::from_f32(half.to_f32()), half);
        }
        if brain.to_f32().is_nan() {
            assert!(Bf16::from_f32(brain.to_f32()).to_f32().is_nan());
        } else {
            assert_eq!(Bf16::from_f32(brain.to_f32()), brain);
        }
    }
}

/// The nearest of the finite values around `value`, ties to the even one.
fn nearest(value: f32, below: u16, of: impl Fn(u16) -> f32) -> u16 {
    let (low, high) = (f64::from(of(below)), f64::from(of(below + 1)));
    let (to_low, to_high) = (f64::from(value) - low, high - f64::from(value));
    match to_low.partial_cmp(&to_high) {
        Some(std::cmp::Ordering::Less) => below,
        Some(std::cmp::Ordering::Greater) => below + 1,
        _ => below + (below & 1),
    }
}

#[test]
fn values_between_round_to_nearest_even() {
    let mut random = Random(5);
    // All pairs of neighbours of the positive finite halves: the middle, and a place at random.
    for below in 0..0x7bff {
        let of = |bits| F16::from_bits(bits).to_f32();
        let (low, high) = (of(below), of(below + 1));
        for value in [(low + high) / 2.0, low + (high - low) * random.unit()] {
            let wanted = nearest(value, below, of);
            assert_eq!(F16::from_f32(value).to_bits(), wanted, "{value}");
            assert_eq!(F16::from_f32(-value).to_bits(), wanted | 0x8000, "{value}");
        }
    }
    for below in 0..0x7f7f {
        let bits = u32::from(below) << 16;
        for value in [bits | 0x8000, bits | (random.next() as u32 & 0xffff)].map(f32::from_bits) {
            let wanted = nearest(value, below, |bits| Bf16::from_bits(bits).to_f32());
            assert_eq!(Bf16::from_f32(value).to_bits(), wanted, "{value}");
            assert_eq!(Bf16::from_f32(-value).to_bits(), wanted | 0x8000, "{value}");
        }
    }
}

#[test]
fn the_ends_of_the_range() {
    assert_eq!(F16::from_f32(65519.9).to_f32(), 65504.0);
    assert_eq!(F16::from_f32(65520.0).to_f32(), f32::INFINITY);
    assert_eq!(F16::from_f32(f32::NEG_INFINITY).to_f32(), f32::NEG_INFINITY);
    assert_eq!(F16::from_f32(2f32.powi(-25)).to_bits(), 0);
    assert_eq!(F16::from_f32(-0.0).to_bits(), 0x8000);
    assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    assert_eq!(Bf16::from_f32(f32::NEG_INFINITY).to_f32(), f32::NEG_INFINITY);
    assert_eq!(format!("{} {:?}", F16::from_f32(0.5), Bf16::from_f32(1.5)), "0.5 1.5");
    assert_eq!(f32::from(F16::from_f32(0.25)) + f32::from(Bf16::from_f32(0.25)), 0.5);
}

/// The crate of that name writes the same bits.
#[cfg(feature = "half")]
#[test]
fn types_of_the_half_crate_are_elements() {
    use gannet::{BuildParams, Element, ElementType, Index, IndexParams, Matrix, SearchParams};

    for bits in 0..=u16::MAX {
        assert_eq!(F16::from(half::f16::from_bits(bits)).to_bits(), bits);
        assert_eq!(half::bf16::from(Bf16::from_bits(bits)).to_bits(), bits);
    }
    assert_eq!((half::f16::TYPE, half::bf16::TYPE), (ElementType::F16, ElementType::Bf16));
    let rows: Vec<half::f16> = (0..40).map(|i| half::f16::from_f32(i as f32)).collect();
    let index = Index::new(&IndexParams::new(2)).unwrap();
    index.build(Matrix::new(&rows, 2).unwrap(), &BuildParams::new()).unwrap();
    assert_eq!(index.get::<half::f16>(7).unwrap().unwrap(), rows[14..16]);
    assert_eq!(index.get::<F16>(7).unwrap().unwrap()[0].to_f32(), 14.0);
    let found = index.search(Matrix::one(&rows[8..10]).unwrap(), 1, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [4]);
}
