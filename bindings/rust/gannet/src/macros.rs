//! The common part of the parameter builders and the enums.

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

/// An enum whose values are constants of `ann.h`, each with the text that `Display`, `FromStr` and serde
/// know it by.
macro_rules! c_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$value_meta:meta])* $value:ident = $constant:ident as $text:literal,)+
    }) => {
        $(#[$meta])*
        ///
        #[doc = concat!("As text ", $("`", $text, "` ",)+ "in this order.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$value_meta])* $value,)+
        }

        #[allow(deprecated)]
        impl crate::macros::Raw for $name {
            type Out = i32;
            fn raw(self) -> i32 {
                match self {
                    $(Self::$value => crate::sys::$constant as i32,)+
                }
            }
        }

        #[allow(deprecated)]
        impl $name {
            /// `None` for AUTO, and for what a newer library may have added.
            #[allow(dead_code)]
            pub(crate) fn from_raw(raw: i32) -> Option<Self> {
                [$(Self::$value),+].into_iter().find(|&value| crate::macros::Raw::raw(value) == raw)
            }

            fn text(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.text())
            }
        }

        #[allow(deprecated)]
        impl std::str::FromStr for $name {
            type Err = crate::Error;

            fn from_str(text: &str) -> crate::Result<Self> {
                [$(Self::$value),+].into_iter().find(|value| value.text() == text).ok_or_else(|| {
                    let known = [$($text),+].join(", ");
                    let message = format!("{} is {text:?}, known are {known}", stringify!($name));
                    crate::Error::new(crate::Status::InvalidArgument, message)
                })
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.text())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                from: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
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
