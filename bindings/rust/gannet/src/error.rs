//! Section 2 of the header.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::sys;
use crate::version::static_text;

/// The result of the functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! statuses {
    ($($(#[$meta:meta])* $value:ident = $constant:ident,)+) => {
        /// Why a call failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$meta])* $value,)+
            /// A status that a newer library has added.
            Other(i32),
        }

        impl Status {
            /// The number of `ann.h`. Its class is this divided by 100.
            ///
            /// ```
            /// assert_eq!(gannet::Status::Busy.code(), 201);
            /// ```
            pub fn code(self) -> i32 {
                match self {
                    $(Status::$value => sys::$constant as i32,)+
                    Status::Other(code) => code,
                }
            }

            pub(crate) fn from_code(code: i32) -> Self {
                [$(Status::$value),+]
                    .into_iter()
                    .find(|status| status.code() == code)
                    .unwrap_or(Status::Other(code))
            }
        }
    };
}

statuses! {
    /// An argument is out of range or does not match another; the text says which and why.
    InvalidArgument = ANN_INVALID_ARGUMENT,
    /// Legal, but above a limit of the library or of a parameter.
    Limit = ANN_LIMIT,
    /// Legal, but this library, index or device does not do it.
    Unsupported = ANN_UNSUPPORTED,
    /// NaN or infinity in a vector.
    NotFinite = ANN_NOT_FINITE,
    /// Not in this state: search before build, build after build.
    State = ANN_STATE,
    /// Another call that changes the same index is running.
    Busy = ANN_BUSY,
    /// Host memory is used up.
    NoMemory = ANN_NO_MEMORY,
    /// Device memory is used up.
    DeviceNoMemory = ANN_DEVICE_NO_MEMORY,
    /// No such device, or no driver for it.
    NoDevice = ANN_NO_DEVICE,
    /// A fault ended this process's use of CUDA; CPU indexes go on.
    DeviceLost = ANN_DEVICE_LOST,
    /// The system, or a stream of the caller, refused to read or write; see [`Error::os_error`].
    Io = ANN_IO,
    /// The file is damaged, cut, or no file of an index.
    Corrupt = ANN_CORRUPT,
    /// The file is in order, but of a format that this library does not know.
    Version = ANN_VERSION,
    /// The call was cancelled through its [`Monitor`](crate::Monitor).
    Cancelled = ANN_CANCELLED,
    /// The deadline of its [`Monitor`](crate::Monitor) passed.
    Deadline = ANN_DEADLINE,
    /// A defect of the library. Please report it.
    Internal = ANN_INTERNAL,
}

impl Status {
    /// The name in `ann.h`.
    ///
    /// ```
    /// assert_eq!(gannet::Status::Limit.name(), "ANN_LIMIT");
    /// ```
    pub fn name(self) -> &'static str {
        // SAFETY: takes any number; the text lives as long as the library.
        unsafe { static_text(sys::ann_status_name(self.code())) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where and why a call failed. A call that fails has changed nothing, except rows of results
/// already written.
///
/// ```
/// use gannet::{BuildParams, Index, IndexParams, Matrix, Status};
///
/// let index = Index::new(&IndexParams::new(2))?;
/// let rows = [0.0, 1.0, 2.0, f32::NAN];
/// let error = index.build(Matrix::new(&rows, 2)?, &BuildParams::new()).unwrap_err();
/// assert_eq!(error.status(), Status::NotFinite);
/// assert_eq!((error.row(), error.column()), (Some(1), Some(1)));
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
    row: Option<u64>,
    column: Option<u64>,
    os_error: Option<i32>,
    cuda_error: Option<i32>,
    stream_error: Option<StreamError>,
}

impl Error {
    /// An error that this crate finds before it calls the library.
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Error {
            status,
            message,
            row: None,
            column: None,
            os_error: None,
            cuda_error: None,
            stream_error: None,
        }
    }

    /// An error of the CUDA driver.
    pub(crate) fn of_cuda(status: Status, code: i32, message: impl Into<String>) -> Self {
        Error { cuda_error: Some(code), ..Self::new(status, message) }
    }

    /// The error of a call whose stream failed: what the stream said is what matters.
    pub(crate) fn of_stream(self, error: io::Error) -> Self {
        Error {
            message: format!("the caller's stream: {error}"),
            os_error: error.raw_os_error(),
            stream_error: Some(StreamError(Arc::new(error))),
            ..self
        }
    }

    fn from_raw(status: sys::ann_status, raw: &sys::ann_error) -> Self {
        let text: Vec<u8> =
            raw.message.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
        Error {
            status: Status::from_code(status),
            message: String::from_utf8_lossy(&text).into_owned(),
            row: Some(raw.row).filter(|&row| row != u64::MAX),
            column: Some(raw.column).filter(|&column| column != u64::MAX),
            os_error: Some(raw.os_error).filter(|&number| number != 0),
            cuda_error: Some(raw.cuda_error).filter(|&number| number != 0),
            stream_error: None,
        }
    }

    /// The kind of failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// One line: parameter, value, allowed range.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Row of the vector at fault.
    pub fn row(&self) -> Option<u64> {
        self.row
    }

    /// Column of the value at fault.
    pub fn column(&self) -> Option<u64> {
        self.column
    }

    /// `errno`, where the system refused something.
    pub fn os_error(&self) -> Option<i32> {
        self.os_error
    }

    /// `cudaError_t`, where CUDA did.
    pub fn cuda_error(&self) -> Option<i32> {
        self.cuda_error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

/// The error of a stream of the caller. Equal if it is the same occurrence.
#[derive(Debug, Clone)]
struct StreamError(Arc<io::Error>);

impl PartialEq for StreamError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StreamError {}

/// The source is the [`io::Error`] of a stream that the caller gave.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let StreamError(error) = self.stream_error.as_ref()?;
        Some(&**error)
    }
}

/// Makes a call with a place for its error, and reads both.
pub(crate) fn check(call: impl FnOnce(*mut sys::ann_error) -> sys::ann_status) -> Result<()> {
    let mut error = sys::ann_error::default();
    match call(&mut error) {
        status if status == sys::ANN_OK as i32 => Ok(()),
        status => Err(Error::from_raw(status, &error)),
    }
}
