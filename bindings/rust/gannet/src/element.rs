//! Section 3 of the header: the types of one coordinate.

use std::fmt;

use crate::macros::Raw;

c_enum! {
    /// The type of one coordinate, as a value.
    pub enum ElementType {
        /// IEEE binary32, `f32`.
        F32 = ANN_F32 as "f32",
        /// IEEE binary16, [`F16`].
        F16 = ANN_F16 as "f16",
        /// The upper half of a binary32, [`Bf16`].
        Bf16 = ANN_BF16 as "bf16",
        /// `i8`.
        I8 = ANN_I8 as "i8",
        /// `u8`.
        U8 = ANN_U8 as "u8",
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The types of one coordinate: `f32`, [`F16`], [`Bf16`], `i8` and `u8`; with the feature `half` also
/// that crate's `f16` and `bf16`.
///
/// ```
/// use gannet::{Bf16, Element, ElementType};
///
/// fn type_of<T: Element>(_rows: &[T]) -> ElementType {
///     T::TYPE
/// }
/// assert_eq!(type_of(&[Bf16::from_f32(1.0)]), ElementType::Bf16);
/// ```
// Sealed, because the library reads and writes slices of these as plain numbers: every pattern of
// bits has to be a value.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// The same as a value.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($element:ty => $value:ident,)+) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const TYPE: ElementType = ElementType::$value;
        }
    )+};
}
elements! { f32 => F32, F16 => F16, Bf16 => Bf16, i8 => I8, u8 => U8, }
// Transparent 16-bit numbers of the same formats.
#[cfg(feature = "half")]
elements! { half::f16 => F16, half::bf16 => Bf16, }

pub(crate) fn raw_type<T: Element>() -> i32 {
    T::TYPE.raw()
}

macro_rules! half {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The value with these bits.
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// The bits of the value.
            pub const fn to_bits(self) -> u16 {
                self.0
            }

            /// Bits as values, without a copy: for files, and for other crates' types.
            pub fn slice_from_bits(bits: &[u16]) -> &[Self] {
                // SAFETY: the type is a transparent u16, of which all patterns are values.
                unsafe { std::slice::from_raw_parts(bits.as_ptr().cast(), bits.len()) }
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

half! {
    /// IEEE binary16. Two values are equal if their bits are.
    ///
    /// ```
    /// use gannet::F16;
    ///
    /// assert_eq!(F16::from_f32(0.5).to_f32(), 0.5);
    /// assert_eq!(F16::from_f32(2049.0).to_f32(), 2048.0); // rounded to nearest even
    /// assert_eq!(F16::slice_from_bits(&[0x3c00]), [F16::from_f32(1.0)]);
    /// ```
    F16
}

half! {
    /// The upper half of an IEEE binary32. Two values are equal if their bits are.
    ///
    /// ```
    /// use gannet::Bf16;
    ///
    /// assert_eq!(Bf16::from_f32(0.5).to_f32(), 0.5);
    /// assert_eq!(Bf16::from_f32(257.0).to_f32(), 256.0); // rounded to nearest even
    /// assert_eq!(Bf16::slice_from_bits(&[0x3f80]), [Bf16::from_f32(1.0)]);
    /// ```
    Bf16
}

impl F16 {
    /// The nearest value, ties to even; infinity above the range.
    pub fn from_f32(value: f32) -> Self {
        let sign = ((value.to_bits() >> 16) & 0x8000) as u16;
        let bits = value.to_bits() & 0x7fff_ffff;
        let magnitude = if bits > 0x7f80_0000 {
            0x7e00 // NaN
        } else if bits >= 0x477f_f000 {
            0x7c00 // 65,520 and more rounds to infinity
        } else if bits < 0x3880_0000 {
            // Below 2^-14 values are multiples of 2^-24. Adding 2^23 rounds to whole ones.
            let units = f32::from_bits(bits) * 16_777_216.0;
            ((units + 8_388_608.0) - 8_388_608.0) as u16
        } else {
            let rounded = bits + 0xfff + ((bits >> 13) & 1);
            ((rounded - 0x3800_0000) >> 13) as u16
        };
        Self(sign | magnitude)
    }

    /// The same value, exactly.
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let exponent = u32::from(self.0 >> 10) & 0x1f;
        let fraction = u32::from(self.0) & 0x3ff;
        let magnitude = match exponent {
            0 => (fraction as f32 / 16_777_216.0).to_bits(),
            0x1f => 0x7f80_0000 | (fraction << 13),
            _ => ((exponent + 112) << 23) | (fraction << 13),
        };
        f32::from_bits(sign | magnitude)
    }
}

impl Bf16 {
    /// The nearest value, ties to even; infinity above the range.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }

    /// The same value, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

#[cfg(feature = "half")]
impl From<half::f16> for F16 {
    fn from(value: half::f16) -> Self {
        F16(value.to_bits())
    }
}

#[cfg(feature = "half")]
impl From<F16> for half::f16 {
    fn from(value: F16) -> Self {
        half::f16::from_bits(value.0)
    }
}

#[cfg(feature = "half")]
impl From<half::bf16> for Bf16 {
    fn from(value: half::bf16) -> Self {
        Bf16(value.to_bits())
    }
}

#[cfg(feature = "half")]
impl From<Bf16> for half::bf16 {
    fn from(value: Bf16) -> Self {
        half::bf16::from_bits(value.0)
    }
}
