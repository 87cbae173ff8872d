//! Section 12 of the header: files.

use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::context::Context;
use crate::element::ElementType;
use crate::error::{check, Error, Result, Status};
use crate::index::Index;
use crate::monitor::Monitor;
use crate::params::{GraphKind, Metric};
use crate::streams::{self, Stream};
use crate::sys;

/// Settings of a save.
///
/// ```
/// use gannet::SaveParams;
///
/// let params = SaveParams::new().sync(false).threads(2);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct SaveParams<'a> {
    raw: sys::ann_save_params,
    monitor: Option<&'a Monitor>,
}

impl<'a> SaveParams<'a> {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Threads that compute sums.
        threads: u32;
        /// Whether to wait until the disk has file and name, so that the save survives a power
        /// failure. Without, only a crash of the process is survived.
        sync: bool;
    }

    /// Lets other threads watch and cancel the save.
    pub fn monitor(mut self, monitor: &'a Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }

    pub(crate) fn raw(&self) -> &sys::ann_save_params {
        &self.raw
    }

    pub(crate) fn monitor_pointer(&self) -> *mut sys::ann_monitor {
        Monitor::pointer(self.monitor)
    }
}

/// Settings of what opens or verifies a file.
///
/// ```
/// use gannet::{ElementType, Metric, OpenParams};
///
/// let mine = OpenParams::new().expect_dim(128).expect_metric(Metric::Cosine);
/// let mine = mine.expect_element(ElementType::F32);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct OpenParams<'a> {
    raw: sys::ann_open_params,
    context: Option<&'a Context>,
    monitor: Option<&'a Monitor>,
}

impl<'a> OpenParams<'a> {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Threads that read and check.
        threads: u32;
        /// Refuse a file of another metric.
        expect_metric: Metric;
        /// Refuse a file of another element.
        expect_element: ElementType;
    }

    /// Refuse a file of another number of columns.
    pub fn expect_dim(mut self, dim: usize) -> Self {
        // A dim of more than 32 bits is that of no file.
        self.raw.expect_dim = u32::try_from(dim).unwrap_or(u32::MAX);
        self
    }

    /// Opens within the bounds of a context.
    pub fn context(mut self, context: &'a Context) -> Self {
        self.context = Some(context);
        self
    }

    /// Lets other threads watch and cancel the call.
    pub fn monitor(mut self, monitor: &'a Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }

    fn in_mode(&self, mode: u32) -> sys::ann_open_params {
        sys::ann_open_params { mode: mode as i32, ..self.raw }
    }
}

/// Saving.
impl<'rows> Index<'rows> {
    /// Saves to a file, replacing one that is there. The new file is written beside it, synced and
    /// renamed over it: at every moment, also after a crash or with a full disk, `path` is the old
    /// file or the new one, whole. Searches may run meanwhile.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build, [`Io`](crate::Status::Io) (nothing has
    /// changed, unless the text says that the new file is in place and its durability unknown),
    /// [`Corrupt`](crate::Status::Corrupt) if an index that was opened lazily meets damage in its
    /// own file, [`InvalidArgument`](crate::Status::InvalidArgument) for a path with a zero in it,
    /// [`NoMemory`](crate::Status::NoMemory), [`Cancelled`](crate::Status::Cancelled),
    /// [`Deadline`](crate::Status::Deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, OpenParams, SaveParams, SearchParams};
    ///
    /// # let folder = std::env::temp_dir().join(format!("gannet-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// let path = folder.join("points.gannet");
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
    /// index.save(&path, &SaveParams::new())?;
    ///
    /// let opened = Index::open(&path, &OpenParams::new())?;
    /// let query = Matrix::one(&[4.0f32])?;
    /// assert_eq!(opened.search(query, 2, &SearchParams::new())?.ids(), [1, 2]);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>, params: &SaveParams<'_>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let (index, monitor) = (self.pointer(), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call.
        check(|error| unsafe { sys::ann_save(index, path.as_ptr(), &params.raw, monitor, error) })
    }

    /// Writes the same bytes to a stream, from first to last. Flushing it and making its bytes
    /// durable are the caller's part. An error of the stream is the
    /// [`source`](std::error::Error::source) of this one; a panic in it goes on after the call.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, OpenParams, SaveParams};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
    /// let mut bytes = Vec::new();
    /// index.save_to(&mut bytes, &SaveParams::new())?;
    ///
    /// let opened = Index::open_memory(&bytes, &OpenParams::new())?;
    /// assert_eq!(opened.get::<f32>(1)?, Some(vec![5.0]));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn save_to<W: Write + ?Sized>(
        &self,
        stream: &mut W,
        params: &SaveParams<'_>,
    ) -> Result<()> {
        let mut stream = Stream::new(stream);
        let user = stream.user();
        let writer =
            sys::ann_writer { write: Some(streams::write::<W>), user, ..Default::default() };
        let (index, monitor) = (self.pointer(), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call, and only the callback uses the stream.
        let outcome = check(|error| unsafe {
            sys::ann_save_stream(index, &writer, &params.raw, monitor, error)
        });
        stream.finish(outcome)
    }
}

/// Opening.
impl<'rows> Index<'rows> {
    /// Opens a file as a built index: reads everything into memory and checks every byte before it
    /// returns. The index answers as the one that was saved.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::Status::Io), [`Corrupt`](crate::Status::Corrupt),
    /// [`Version`](crate::Status::Version), [`InvalidArgument`](crate::Status::InvalidArgument)
    /// where the file is not what `params` expects, [`NoMemory`](crate::Status::NoMemory),
    /// [`Cancelled`](crate::Status::Cancelled), [`Deadline`](crate::Status::Deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{Index, OpenParams, Status};
    ///
    /// let error = Index::open("no/such/file.gannet", &OpenParams::new()).unwrap_err();
    /// assert_eq!(error.status(), Status::Io);
    /// let kind = std::io::Error::from_raw_os_error(error.os_error().unwrap()).kind();
    /// assert_eq!(kind, std::io::ErrorKind::NotFound);
    /// ```
    pub fn open(path: impl AsRef<Path>, params: &OpenParams<'_>) -> Result<Self> {
        Self::open_path(path.as_ref(), params, sys::ANN_OPEN_FULL)
    }

    /// Maps a file, which opens in milliseconds, and checks each megabyte when it is first read. A
    /// search that meets damage fails with [`Status::Corrupt`].
    ///
    /// # Safety
    ///
    /// No process cuts the file or writes to it while the index lives. Saving over it is fine, as a
    /// save makes a new file.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub unsafe fn open_lazy(path: impl AsRef<Path>, params: &OpenParams<'_>) -> Result<Self> {
        Self::open_path(path.as_ref(), params, sys::ANN_OPEN_LAZY)
    }

    /// Maps a file and checks nothing but what says how it is laid out.
    ///
    /// # Safety
    ///
    /// As for [`open_lazy`](Self::open_lazy); and the file is in order, as [`verify`] says. With a
    /// damaged or hostile one behaviour is undefined.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub unsafe fn open_trusted(path: impl AsRef<Path>, params: &OpenParams<'_>) -> Result<Self> {
        Self::open_path(path.as_ref(), params, sys::ANN_OPEN_TRUSTED)
    }

    /// As [`open`](Self::open), from the bytes of a file, of which it keeps copies.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for [`Io`](crate::Status::Io).
    pub fn open_memory(file: &[u8], params: &OpenParams<'_>) -> Result<Self> {
        Self::open_bytes(file, params, sys::ANN_OPEN_FULL)
    }

    /// Uses the bytes of a file where they lie and checks each megabyte when it is first read. They
    /// start on a multiple of 64, as mapped memory does.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for [`Io`](crate::Status::Io);
    /// [`InvalidArgument`](crate::Status::InvalidArgument) also for bytes that start elsewhere.
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, OpenParams, SaveParams, SearchParams};
    ///
    /// #[repr(C, align(64))]
    /// struct Aligned([u8; 65536]);
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
    /// let mut memory = Box::new(Aligned([0; 65536]));
    /// let mut room = &mut memory.0[..];
    /// index.save_to(&mut room, &SaveParams::new())?;
    /// let used = 65536 - room.len();
    ///
    /// let opened = Index::open_borrowed(&memory.0[..used], &OpenParams::new())?;
    /// let query = Matrix::one(&[4.0f32])?;
    /// assert_eq!(opened.search(query, 1, &SearchParams::new())?.ids(), [1]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn open_borrowed(file: &'rows [u8], params: &OpenParams<'_>) -> Result<Self> {
        Self::open_bytes(file, params, sys::ANN_OPEN_LAZY)
    }

    /// As [`open_borrowed`](Self::open_borrowed), but checks nothing but what says how the file is
    /// laid out.
    ///
    /// # Safety
    ///
    /// The file is in order, as [`verify`] says. With a damaged or hostile one behaviour is
    /// undefined.
    ///
    /// # Errors
    ///
    /// As [`open_borrowed`](Self::open_borrowed).
    pub unsafe fn open_borrowed_trusted(
        file: &'rows [u8],
        params: &OpenParams<'_>,
    ) -> Result<Self> {
        Self::open_bytes(file, params, sys::ANN_OPEN_TRUSTED)
    }

    /// As [`open`](Self::open), from a stream that holds `bytes` bytes in all and is read from first
    /// to last. An error of the stream is the [`source`](std::error::Error::source) of this one; a
    /// panic in it goes on after the call.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{Index, OpenParams, Status};
    ///
    /// let mut stream = &b"no file of an index"[..];
    /// let error = Index::open_from(&mut stream, 19, &OpenParams::new()).unwrap_err();
    /// assert_eq!(error.status(), Status::Corrupt);
    /// ```
    pub fn open_from<R: Read + ?Sized>(
        stream: &mut R,
        bytes: u64,
        params: &OpenParams<'_>,
    ) -> Result<Self> {
        let mut stream = Stream::new(stream);
        let user = stream.user();
        let reader =
            sys::ann_reader { read: Some(streams::read::<R>), user, bytes, ..Default::default() };
        let raw = params.in_mode(sys::ANN_OPEN_FULL);
        let (context, monitor) =
            (Context::pointer(params.context), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call, and only the callback uses the stream.
        let outcome = Self::made(|out, error| unsafe {
            sys::ann_open_stream(context, &reader, &raw, out, monitor, error)
        });
        stream.finish(outcome)
    }

    fn open_path(path: &Path, params: &OpenParams<'_>, mode: u32) -> Result<Self> {
        let (path, raw) = (c_path(path)?, params.in_mode(mode));
        let (context, monitor) =
            (Context::pointer(params.context), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call; what a mapping asks for, the callers promise.
        Self::made(|out, error| unsafe {
            sys::ann_open(context, path.as_ptr(), &raw, out, monitor, error)
        })
    }

    /// In other modes than FULL the bytes must live for `'rows`.
    fn open_bytes(file: &[u8], params: &OpenParams<'_>, mode: u32) -> Result<Self> {
        let (data, bytes, raw) = (file.as_ptr().cast(), file.len() as u64, params.in_mode(mode));
        let (context, monitor) =
            (Context::pointer(params.context), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call, and the bytes as long as they are used.
        Self::made(|out, error| unsafe {
            sys::ann_open_memory(context, data, bytes, &raw, out, monitor, error)
        })
    }
}

/// Checks a file as [`Index::open`] does, without keeping it. The text of a [`Status::Corrupt`]
/// names section and place.
///
/// # Errors
///
/// As [`Index::open`].
///
/// # Examples
///
/// ```
/// use gannet::{verify, OpenParams, Status};
///
/// # let file = std::env::temp_dir().join(format!("gannet-doc-verify-{}", std::process::id()));
/// std::fs::write(&file, b"no file of an index").unwrap();
/// assert_eq!(verify(&file, &OpenParams::new()).unwrap_err().status(), Status::Corrupt);
/// # std::fs::remove_file(&file).unwrap();
/// ```
pub fn verify(path: impl AsRef<Path>, params: &OpenParams<'_>) -> Result<()> {
    let path = c_path(path.as_ref())?;
    let monitor = Monitor::pointer(params.monitor);
    // SAFETY: everything lives through the call.
    check(|error| unsafe { sys::ann_verify(path.as_ptr(), &params.raw, monitor, error) })
}

/// The description in the header of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FileInfo {
    /// Major and minor version of the format.
    pub format: (u16, u16),
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Number of rows.
    pub rows: u64,
    /// Columns.
    pub dim: usize,
    /// The metric. `None` if it is one that this crate does not know.
    pub metric: Option<Metric>,
    /// The element as stored. `None` if it is one that this crate does not know.
    pub element: Option<ElementType>,
    /// The graph. `None` if it is one that this crate does not know.
    pub graph: Option<GraphKind>,
    /// Edges per row of the search graph.
    pub degree: u32,
    /// Rows where searches may start.
    pub entry_points: u32,
    /// Whether rows have ids other than their numbers.
    pub has_ids: bool,
    /// Version of the library that wrote the file: major, minor and patch.
    pub writer: (u16, u8, u8),
    /// Seed of the build.
    pub seed: u64,
    /// Equal for equal indexes, and only for them.
    pub content_id: [u8; 16],
}

/// Reads the header of a file, and checks header, section table and tail; the rest is
/// not read.
///
/// # Errors
///
/// [`Io`](crate::Status::Io), [`Corrupt`](crate::Status::Corrupt),
/// [`Version`](crate::Status::Version), [`InvalidArgument`](crate::Status::InvalidArgument) for a
/// path with a zero in it.
///
/// # Examples
///
/// ```
/// use gannet::{file_info, BuildParams, Index, IndexParams, Matrix, SaveParams};
///
/// # let file = std::env::temp_dir().join(format!("gannet-doc-info-{}", std::process::id()));
/// let index = Index::new(&IndexParams::new(2))?;
/// index.build(Matrix::new(&[1u8, 2, 3, 4, 5, 6], 2)?, &BuildParams::new())?;
/// index.save(&file, &SaveParams::new())?;
/// let info = file_info(&file)?;
/// assert_eq!((info.rows, info.dim, info.format), (3, 2, (1, 0)));
/// # std::fs::remove_file(&file).unwrap();
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn file_info(path: impl AsRef<Path>) -> Result<FileInfo> {
    let path = c_path(path.as_ref())?;
    let mut raw = sys::ann_file_description::default();
    // SAFETY: everything lives through the call.
    check(|error| unsafe { sys::ann_file_info(path.as_ptr(), &mut raw, error) })?;
    Ok(FileInfo::from_raw(&raw))
}

impl FileInfo {
    fn from_raw(raw: &sys::ann_file_description) -> Self {
        let [patch, minor, ..] = raw.writer.to_le_bytes();
        FileInfo {
            format: ((raw.format >> 16) as u16, raw.format as u16),
            file_bytes: raw.file_bytes,
            rows: raw.rows,
            dim: raw.dim as usize,
            metric: Metric::from_raw(raw.metric),
            element: ElementType::from_raw(raw.element),
            graph: GraphKind::from_raw(raw.graph),
            degree: raw.degree,
            entry_points: raw.entry_points,
            has_ids: raw.has_ids != 0,
            writer: ((raw.writer >> 16) as u16, minor, patch),
            seed: raw.seed,
            content_id: raw.content_id,
        }
    }
}

/// A path as the library takes it.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    let refuse = |_| Error::new(Status::InvalidArgument, "path has a byte of zero in it");
    CString::new(path.as_os_str().as_bytes()).map_err(refuse)
}
