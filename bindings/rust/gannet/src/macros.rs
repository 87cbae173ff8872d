//! What the parameter builders and the enums have in common.

/// The number that stands for a value in a struct of `ann.h`.
pub(crate) trait Raw {
    type Out;
    fn raw(self) -> Self::Out;
}

macro_rules! raw_is_self {
    ($($number:ty)*) => {$(
        impl Raw for $number {
            type Out = $number;
            fn raw(self) -> $number {
                self
            }
        }
    )*};
}
raw_is_self!(u32 u64 i32 f32);

/// A switch: zero would leave it to the library.
impl Raw for bool {
    type Out = i32;
    fn raw(self) -> i32 {
        (if self { crate::sys::ANN_ON } else { crate::sys::ANN_OFF }) as i32
    }
}

/// An enum whose values are constants of `ann.h`.
macro_rules! c_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$value_meta:meta])* $value:ident = $constant:ident,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$value_meta])* $value,)+
        }

        impl crate::macros::Raw for $name {
            type Out = i32;
            fn raw(self) -> i32 {
                match self {
                    $(Self::$value => crate::sys::$constant as i32,)+
                }
            }
        }

        impl $name {
            /// `None` for AUTO, and for what a newer library may have added.
            #[allow(dead_code)]
            pub(crate) fn from_raw(raw: i32) -> Option<Self> {
                [$(Self::$value),+].into_iter().find(|&value| crate::macros::Raw::raw(value) == raw)
            }
        }
    };
}

/// Methods of a builder that set one field of its `raw` struct each.
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident: $kind:ty;)+) => {$(
        $(#[$meta])*
        pub fn $name(mut self, $name: $kind) -> Self {
            self.raw.$name = crate::macros::Raw::raw($name);
            self
        }
    )+};
}
