//! Section 4 of the header: vectors of the caller.

use std::alloc::{alloc_zeroed, Layout};
use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::element::{raw_type, Element};
use crate::error::{Error, Result, Status};
use crate::results::QueryStatus;
use crate::sys;

/// A slice seen as vectors, one a row.
///
/// ```
/// use gannet::Matrix;
///
/// let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let rows = Matrix::new(&data, 3)?;
/// assert_eq!((rows.rows(), rows.dim()), (2, 3));
/// assert_eq!(rows.row(1), Some(&[4.0, 5.0, 6.0][..]));
/// assert!(Matrix::new(&data, 4).is_err());
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    dim: u32,
    stride: usize,
}

impl<'a, T: Element> Matrix<'a, T> {
    /// Rows of `dim` columns, one behind the other. An error unless `data` holds whole rows.
    pub fn new(data: &'a [T], dim: usize) -> Result<Self> {
        if dim == 0 || data.len() % dim != 0 {
            let text = format!("dim is {dim}, which does not divide {} elements", data.len());
            return Err(Error::new(Status::InvalidArgument, text));
        }
        Self::strided(data, data.len() / dim, dim, dim)
    }

    /// One row: a single query.
    ///
    /// ```
    /// let query = gannet::Matrix::one(&[1u8, 2, 3])?;
    /// assert_eq!((query.rows(), query.dim()), (1, 3));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn one(data: &'a [T]) -> Result<Self> {
        Self::new(data, data.len())
    }

    /// Rows that begin `stride` elements apart, of which the first `dim` are the vector.
    ///
    /// ```
    /// use gannet::Matrix;
    ///
    /// let padded = [1i8, 2, 0, 0, 3, 4, 0, 0];
    /// let rows = Matrix::strided(&padded, 2, 2, 4)?;
    /// assert_eq!(rows.row(1), Some(&[3, 4][..]));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn strided(data: &'a [T], rows: usize, dim: usize, stride: usize) -> Result<Self> {
        let before_last = rows.saturating_sub(1).checked_mul(stride);
        let needed = before_last.and_then(|before| before.checked_add(dim));
        let held = rows == 0 || needed.is_some_and(|needed| needed <= data.len());
        match u32::try_from(dim) {
            Ok(dim_raw) if dim_raw > 0 && stride >= dim && held => {
                Ok(Matrix { data, rows, dim: dim_raw, stride })
            }
            _ => Err(Error::new(
                Status::InvalidArgument,
                format!("{rows} rows of dim {dim}, {stride} apart, in {} elements", data.len()),
            )),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim as usize
    }

    /// One row, if it exists.
    pub fn row(&self, row: usize) -> Option<&'a [T]> {
        let begin = (row < self.rows).then(|| row * self.stride)?;
        self.data.get(begin..begin + self.dim())
    }

    pub(crate) fn raw(&self) -> sys::ann_matrix {
        sys::ann_matrix {
            element: raw_type::<T>(),
            data: self.data.as_ptr().cast(),
            rows: self.rows as u64,
            dim: self.dim,
            row_stride: (self.stride * size_of::<T>()) as u64,
            ..Default::default()
        }
    }
}

/// Any view of two dimensions in standard layout (row by row, without gaps).
///
/// ```
/// use gannet::Matrix;
/// use ndarray::array;
///
/// let table = array![[1.0f32, 2.0], [3.0, 4.0]];
/// let rows = Matrix::try_from(table.view())?;
/// assert_eq!(rows.row(1), Some(&[3.0, 4.0][..]));
/// assert!(Matrix::try_from(table.t()).is_err());
/// # Ok::<(), gannet::Error>(())
/// ```
#[cfg(feature = "ndarray")]
impl<'a, T: Element> TryFrom<ndarray::ArrayView2<'a, T>> for Matrix<'a, T> {
    type Error = Error;

    fn try_from(view: ndarray::ArrayView2<'a, T>) -> Result<Self> {
        let (rows, dim) = view.dim();
        let data = view.to_slice().ok_or_else(|| {
            Error::new(Status::InvalidArgument, "the array is not in standard layout")
        })?;
        Self::strided(data, rows, dim, dim)
    }
}

/// A matrix whose element is known at run time only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnyMatrix<'a> {
    pub(crate) raw: sys::ann_matrix,
    data: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for a shared slice of numbers, which is both.
unsafe impl Send for AnyMatrix<'_> {}
unsafe impl Sync for AnyMatrix<'_> {}

impl<'a, T: Element> From<Matrix<'a, T>> for AnyMatrix<'a> {
    fn from(matrix: Matrix<'a, T>) -> Self {
        AnyMatrix { raw: matrix.raw(), data: PhantomData }
    }
}

/// Sizes of the header have 32 bits.
pub(crate) fn as_u32(value: usize, name: &str) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::new(Status::Limit, format!("{name} is {value}")))
}

/// An error unless a buffer has `rows * columns` places.
pub(crate) fn check_len(name: &str, len: usize, rows: usize, columns: usize) -> Result<()> {
    if rows.checked_mul(columns) == Some(len) {
        return Ok(());
    }
    let text = format!("{name} has {len} places, not {rows} * {columns}");
    Err(Error::new(Status::InvalidArgument, text))
}

/// The numbers that results are made of.
///
/// # Safety
///
/// Zero bytes are a value of the type.
pub(crate) unsafe trait Number: Copy {}
// SAFETY: plain numbers, and transparent structs of one.
unsafe impl Number for u32 {}
unsafe impl Number for u64 {}
unsafe impl<T: Element> Number for T {}
unsafe impl Number for QueryStatus {}

/// `rows * columns` zeros, or an error where memory ends. The system hands out pages when they are
/// written first, so that a k far too large costs nothing before the library refuses it.
pub(crate) fn zeros<T: Number>(rows: usize, columns: usize) -> Result<Vec<T>> {
    let layout = rows.checked_mul(columns).and_then(|len| Layout::array::<T>(len).ok());
    let memory = match layout {
        Some(layout) if layout.size() == 0 => return Ok(Vec::new()),
        // SAFETY: the size is not zero.
        Some(layout) => unsafe { alloc_zeroed(layout) },
        None => null_mut(),
    };
    if memory.is_null() {
        let text = format!("no memory for {rows} * {columns} results");
        return Err(Error::new(Status::NoMemory, text));
    }
    // SAFETY: memory of the global allocator with this layout, and zeros are values.
    Ok(unsafe { Vec::from_raw_parts(memory.cast(), rows * columns, rows * columns) })
}
