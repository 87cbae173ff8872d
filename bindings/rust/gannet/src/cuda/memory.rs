//! Vectors and results in memory of a CUDA device.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

use super::driver::{Address, Primary, OWN_STREAM};
use crate::device::Device;
use crate::element::{raw_type, Element};
use crate::error::{Error, Result, Status};
use crate::macros::Raw;
use crate::matrix::{as_u32, check_len, zeros, AnyMatrix, Number};
use crate::results::{QueryStatus, Results, SearchStats};
use crate::sys;

/// Numbers in memory of a CUDA device, which are freed with it.
///
/// Copies to and from host memory are waited for.
pub struct DeviceBuffer<T> {
    primary: Arc<Primary>,
    address: Address,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Number> DeviceBuffer<T> {
    /// Takes memory for `len` numbers, all of them zero bytes.
    ///
    /// # Errors
    ///
    /// [`Status::NoDevice`] without such a device, [`Status::InvalidArgument`] for [`Device::Cpu`],
    /// [`Status::DeviceNoMemory`].
    pub fn zeroed(device: Device, len: usize) -> Result<Self> {
        let buffer = Self::taken(device, len)?;
        buffer.primary.call("clearing memory", |driver| {
            // SAFETY: the buffer has that many bytes.
            unsafe { (driver.set)(buffer.address, 0, buffer.bytes(), OWN_STREAM) }
        })?;
        buffer.wait()?;
        Ok(buffer)
    }

    /// Takes memory and copies `data` to it.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn from_slice(device: Device, data: &[T]) -> Result<Self> {
        let mut buffer = Self::taken(device, data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    fn taken(device: Device, len: usize) -> Result<Self> {
        let primary = Primary::of(device)?;
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(Error::new(Status::DeviceNoMemory, format!("no memory for {len} numbers")));
        };
        let mut address = 0;
        // SAFETY: the place lives through the call. The driver gives no memory of 0 bytes.
        primary
            .call("taking memory", |driver| unsafe { (driver.take)(&mut address, bytes.max(1)) })?;
        Ok(DeviceBuffer { primary, address, len, kind: PhantomData })
    }

    /// Fills the buffer from host memory; the lengths must be equal.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`] where the lengths differ, [`Status::DeviceLost`].
    pub fn write(&mut self, data: &[T]) -> Result<()> {
        check_len("data", data.len(), self.len, 1)?;
        let bytes = self.bytes();
        self.primary.call("copying to memory", |driver| {
            // SAFETY: both have that many bytes, and live until the copy has been waited for.
            unsafe { (driver.to_device)(self.address, data.as_ptr().cast(), bytes, OWN_STREAM) }
        })?;
        self.wait()
    }

    /// Copies the numbers to host memory.
    ///
    /// # Errors
    ///
    /// [`Status::NoMemory`], [`Status::DeviceLost`].
    pub fn read(&self) -> Result<Vec<T>> {
        let mut data = zeros(self.len, 1)?;
        self.read_into(&mut data)?;
        Ok(data)
    }

    /// As [`read`](Self::read), into a slice of the same length.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`] where the lengths differ, [`Status::DeviceLost`].
    pub fn read_into(&self, data: &mut [T]) -> Result<()> {
        check_len("data", data.len(), self.len, 1)?;
        self.primary.call("copying from memory", |driver| {
            let (to, bytes) = (data.as_mut_ptr().cast(), self.bytes());
            // SAFETY: both have that many bytes, and live until the copy has been waited for; every
            // pattern of bits is a value.
            unsafe { (driver.to_host)(to, self.address, bytes, OWN_STREAM) }
        })?;
        self.wait()
    }

    /// How many numbers it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.primary.device
    }

    /// Its place in the device's memory, for kernels and libraries of one's own.
    pub fn as_ptr(&self) -> *const T {
        self.address as *const T
    }

    /// As [`as_ptr`](Self::as_ptr), to be written to.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.address as *mut T
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: every thread has this stream.
        self.primary.call("waiting", |driver| unsafe { (driver.stream_wait)(OWN_STREAM) })
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// The numbers as rows of `dim` columns, one behind the other.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`] unless the buffer holds whole rows.
    pub fn matrix(&self, dim: usize) -> Result<DeviceMatrix<'_, T>> {
        if dim == 0 || self.len % dim != 0 {
            let text = format!("dim is {dim}, which does not divide {} elements", self.len);
            return Err(Error::new(Status::InvalidArgument, text));
        }
        // SAFETY: the buffer holds the rows and is borrowed as long as the view.
        unsafe { DeviceMatrix::new(self.device(), self.as_ptr(), self.len / dim, dim, dim) }
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: taken once and freed once. Where that fails the device is lost, and its memory too.
        let _ =
            self.primary.call("freeing memory", |driver| unsafe { (driver.free)(self.address) });
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} places on {})", self.len, self.primary.device)
    }
}

/// Vectors in memory of a CUDA device, one a row: of a [`DeviceBuffer`], or of another library.
#[derive(Debug, Clone, Copy)]
pub struct DeviceMatrix<'a, T> {
    device: Device,
    data: *const T,
    rows: usize,
    dim: u32,
    stride: usize,
    life: PhantomData<&'a [T]>,
}

// SAFETY: it stands for a shared slice.
unsafe impl<T: Sync> Send for DeviceMatrix<'_, T> {}
unsafe impl<T: Sync> Sync for DeviceMatrix<'_, T> {}

impl<T: Element> DeviceMatrix<'_, T> {
    /// Rows of `dim` elements that begin `stride` elements apart, from `data` on.
    ///
    /// # Safety
    ///
    /// For `'a` the rows lie in memory of `device`, and nobody writes to them; what has written them is
    /// done.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`] for a dim of 0, a stride below it, or [`Device::Cpu`].
    pub unsafe fn new(
        device: Device,
        data: *const T,
        rows: usize,
        dim: usize,
        stride: usize,
    ) -> Result<Self> {
        check_cuda(device)?;
        if dim == 0 || stride < dim {
            let text = format!("rows of dim {dim} lie {stride} elements apart");
            return Err(Error::new(Status::InvalidArgument, text));
        }
        let dim = as_u32(dim, "dim")?;
        Ok(DeviceMatrix { device, data, rows, dim, stride, life: PhantomData })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim as usize
    }
}

impl<'a, T: Element> From<DeviceMatrix<'a, T>> for AnyMatrix<'a> {
    fn from(matrix: DeviceMatrix<'a, T>) -> Self {
        let raw = sys::ann_matrix {
            element: raw_type::<T>(),
            data: matrix.data.cast(),
            rows: matrix.rows as u64,
            dim: matrix.dim,
            space: matrix.device.raw(),
            row_stride: (matrix.stride * size_of::<T>()) as u64,
            ..Default::default()
        };
        AnyMatrix { raw, life: PhantomData }
    }
}

/// Buffers of a CUDA device for the neighbours of a batch, of [`DeviceResults`] or of another library.
/// What is not set is not written.
#[derive(Debug)]
#[must_use]
pub struct DeviceResultsMut<'a> {
    pub(super) raw: sys::ann_results,
    life: PhantomData<&'a mut [u64]>,
}

// SAFETY: it stands for mutable slices.
unsafe impl Send for DeviceResultsMut<'_> {}
unsafe impl Sync for DeviceResultsMut<'_> {}

impl DeviceResultsMut<'_> {
    /// Takes `k` ids for each of `rows` queries, to `ids` on.
    ///
    /// # Safety
    ///
    /// For `'a` the `[rows, k]` places from `ids` on lie in memory of `device`, and nobody else uses them.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`] for [`Device::Cpu`], [`Status::Limit`] for a k beyond 32 bits.
    pub unsafe fn new(device: Device, rows: usize, k: usize, ids: *mut u64) -> Result<Self> {
        check_cuda(device)?;
        let raw = sys::ann_results {
            k: as_u32(k, "k")?,
            rows: rows as u64,
            ids,
            space: device.raw(),
            ..Default::default()
        };
        Ok(DeviceResultsMut { raw, life: PhantomData })
    }

    /// Takes distances too.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new), `[rows, k]`.
    pub unsafe fn distances(mut self, distances: *mut f32) -> Self {
        self.raw.distances = distances;
        self
    }

    /// Takes the number of neighbours found too.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new), `[rows]`.
    pub unsafe fn counts(mut self, counts: *mut u32) -> Self {
        self.raw.counts = counts;
        self
    }

    /// Takes whether each query was answered too.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new), `[rows]`.
    pub unsafe fn statuses(mut self, statuses: *mut QueryStatus) -> Self {
        self.raw.status = statuses.cast(); // a transparent ann_status
        self
    }
}

/// Memory of a CUDA device for all that a search finds.
#[derive(Debug)]
pub struct DeviceResults {
    rows: usize,
    k: usize,
    ids: DeviceBuffer<u64>,
    distances: DeviceBuffer<f32>,
    counts: DeviceBuffer<u32>,
    statuses: DeviceBuffer<QueryStatus>,
}

impl DeviceResults {
    /// Takes memory for `k` neighbours of each of `rows` queries.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::zeroed`].
    pub fn new(device: Device, rows: usize, k: usize) -> Result<Self> {
        let places = rows.checked_mul(k).ok_or_else(|| {
            Error::new(Status::Limit, format!("{k} neighbours for each of {rows} queries"))
        })?;
        Ok(DeviceResults {
            rows,
            k,
            ids: DeviceBuffer::zeroed(device, places)?,
            distances: DeviceBuffer::zeroed(device, places)?,
            counts: DeviceBuffer::zeroed(device, rows)?,
            statuses: DeviceBuffer::zeroed(device, rows)?,
        })
    }

    /// The buffers for a search.
    ///
    /// # Errors
    ///
    /// [`Status::Limit`] for a k beyond 32 bits.
    pub fn as_mut(&mut self) -> Result<DeviceResultsMut<'_>> {
        let (device, k) = (self.ids.device(), self.k);
        // SAFETY: the buffers have [rows, k] and [rows] places, and are borrowed as long as the view.
        unsafe {
            Ok(DeviceResultsMut::new(device, self.rows, k, self.ids.as_mut_ptr())?
                .distances(self.distances.as_mut_ptr())
                .counts(self.counts.as_mut_ptr())
                .statuses(self.statuses.as_mut_ptr()))
        }
    }

    /// `[rows, k]` ids, on the device.
    pub fn ids(&self) -> &DeviceBuffer<u64> {
        &self.ids
    }

    /// `[rows, k]` distances, on the device.
    pub fn distances(&self) -> &DeviceBuffer<f32> {
        &self.distances
    }

    /// `[rows]` neighbours found, on the device.
    pub fn counts(&self) -> &DeviceBuffer<u32> {
        &self.counts
    }

    /// `[rows]` whether each query was answered, on the device.
    pub fn statuses(&self) -> &DeviceBuffer<QueryStatus> {
        &self.statuses
    }

    /// Copies everything to host memory.
    ///
    /// # Errors
    ///
    /// [`Status::NoMemory`], [`Status::DeviceLost`].
    pub fn read(&self) -> Result<Results> {
        Ok(Results {
            k: self.k,
            ids: self.ids.read()?,
            distances: self.distances.read()?,
            counts: self.counts.read()?,
            statuses: self.statuses.read()?,
            stats: SearchStats::default(),
        })
    }
}

fn check_cuda(device: Device) -> Result<()> {
    match device {
        Device::Cuda(_) => Ok(()),
        _ => Err(Error::new(
            Status::InvalidArgument,
            format!("device is {device}; this memory is of CUDA devices"),
        )),
    }
}

/// A stream that work on a CUDA device is queued on. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<OwnedStream>);

struct OwnedStream {
    primary: Arc<Primary>,
    raw: *mut std::ffi::c_void,
}

// SAFETY: a CUstream may be used from any thread.
unsafe impl Send for OwnedStream {}
unsafe impl Sync for OwnedStream {}

impl Stream {
    /// Makes a stream that does not wait for the device's default stream.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::zeroed`].
    pub fn new(device: Device) -> Result<Self> {
        let primary = Primary::of(device)?;
        let mut raw = null_mut();
        const NON_BLOCKING: u32 = 1;
        // SAFETY: the place lives through the call.
        primary.call("making a stream", |driver| unsafe {
            (driver.stream_create)(&mut raw, NON_BLOCKING)
        })?;
        Ok(Stream(Arc::new(OwnedStream { primary, raw })))
    }

    /// Waits until all that is queued is done.
    ///
    /// # Errors
    ///
    /// [`Status::DeviceLost`] if a fault of the device has ended it.
    pub fn wait(&self) -> Result<()> {
        let OwnedStream { primary, raw } = &*self.0;
        // SAFETY: the stream is alive.
        primary.call("waiting for a stream", |driver| unsafe { (driver.stream_wait)(*raw) })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.primary.device
    }

    /// The `cudaStream_t`, for kernels and libraries of one's own.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.0.raw
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // SAFETY: made once and destroyed once; the driver lets what is queued end first.
        let _ = self
            .primary
            .call("ending a stream", |driver| unsafe { (driver.stream_destroy)(self.raw) });
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream on {}", self.device())
    }
}
