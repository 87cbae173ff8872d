//! Section 4 of the header: vectors of the caller.

use std::alloc::{alloc_zeroed, Layout};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::slice::from_raw_parts;

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
    // No slice: what lies between the rows of a view may be someone else's to write.
    data: *const T,
    rows: usize,
    dim: u32,
    stride: usize,
    life: PhantomData<&'a [T]>,
}

// SAFETY: it stands for shared slices, one a row.
unsafe impl<T: Sync> Send for Matrix<'_, T> {}
unsafe impl<T: Sync> Sync for Matrix<'_, T> {}

impl<'a, T: Element> Matrix<'a, T> {
    /// Rows of `dim` columns, one behind the other. An error unless `data` holds whole rows.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for a dim of 0, or one that does not
    /// divide the length.
    pub fn new(data: &'a [T], dim: usize) -> Result<Self> {
        if dim == 0 || data.len() % dim != 0 {
            let text = format!("dim is {dim}, which does not divide {} elements", data.len());
            return Err(Error::new(Status::InvalidArgument, text));
        }
        Self::strided(data, data.len() / dim, dim, dim)
    }

    /// One row: a single query.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for an empty slice.
    ///
    /// # Examples
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
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for a dim of 0, a stride below it, or
    /// rows beyond the slice.
    ///
    /// # Examples
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
        if !held || stride < dim {
            let text =
                format!("{rows} rows of dim {dim}, {stride} apart, in {} elements", data.len());
            return Err(Error::new(Status::InvalidArgument, text));
        }
        // SAFETY: the slice holds the rows.
        unsafe { Self::from_raw(data.as_ptr(), rows, dim, stride) }
    }

    /// Rows of `dim` elements that begin `stride` elements apart.
    ///
    /// # Safety
    ///
    /// Each row can be read for `'a`, and is not written to meanwhile.
    unsafe fn from_raw(data: *const T, rows: usize, dim: usize, stride: usize) -> Result<Self> {
        match u32::try_from(dim) {
            Ok(dim) if dim > 0 => Ok(Matrix { data, rows, dim, stride, life: PhantomData }),
            _ => Err(Error::new(Status::InvalidArgument, format!("dim is {dim}"))),
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
        // SAFETY: there is such a row, and it is one of those that can be read for 'a.
        (row < self.rows)
            .then(|| unsafe { from_raw_parts(self.data.add(row * self.stride), self.dim()) })
    }

    pub(crate) fn raw(&self) -> sys::ann_matrix {
        sys::ann_matrix {
            element: raw_type::<T>(),
            data: self.data.cast(),
            rows: self.rows as u64,
            dim: self.dim,
            row_stride: (self.stride * size_of::<T>()) as u64,
            ..Default::default()
        }
    }
}

/// Any view of two dimensions whose columns lie side by side: rows may be left out and parts of rows be
/// looked at, but not every second column, nor rows backwards or one row many times.
///
/// ```
/// use gannet::Matrix;
/// use ndarray::{array, s};
///
/// let table = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]];
/// let rows = Matrix::try_from(table.slice(s![..;2, 1..]))?;
/// assert_eq!(rows.row(1), Some(&[8.0, 9.0][..]));
/// assert!(Matrix::try_from(table.t()).is_err());
/// # Ok::<(), gannet::Error>(())
/// ```
#[cfg(feature = "ndarray")]
impl<'a, T: Element> TryFrom<ndarray::ArrayView2<'a, T>> for Matrix<'a, T> {
    type Error = Error;

    fn try_from(view: ndarray::ArrayView2<'a, T>) -> Result<Self> {
        let (rows, dim) = view.dim();
        let [between_rows, between_columns] = [view.strides()[0], view.strides()[1]];
        // Strides of an array without rows are zero.
        if rows > 0 && dim > 1 && between_columns != 1 {
            let text = format!("columns of the array are {between_columns} elements apart, not 1");
            return Err(Error::new(Status::InvalidArgument, text));
        }
        // The one row of an array may have any stride.
        let stride = if rows > 1 { usize::try_from(between_rows).unwrap_or(0) } else { dim };
        if stride < dim {
            let text = format!("rows of the array are {between_rows} elements apart, dim is {dim}");
            return Err(Error::new(Status::InvalidArgument, text));
        }
        // SAFETY: the view can read these rows for 'a.
        unsafe { Self::from_raw(view.as_ptr(), rows, dim, stride) }
    }
}

/// A view of one dimension as one row.
///
/// ```
/// use gannet::Matrix;
/// use ndarray::array;
///
/// let table = array![[1u8, 2], [3, 4]];
/// assert_eq!(Matrix::try_from(table.row(1))?.row(0), Some(&[3, 4][..]));
/// assert!(Matrix::try_from(table.column(1)).is_err());
/// # Ok::<(), gannet::Error>(())
/// ```
#[cfg(feature = "ndarray")]
impl<'a, T: Element> TryFrom<ndarray::ArrayView1<'a, T>> for Matrix<'a, T> {
    type Error = Error;

    fn try_from(view: ndarray::ArrayView1<'a, T>) -> Result<Self> {
        Self::try_from(view.insert_axis(ndarray::Axis(0)))
    }
}

/// A matrix whose element is known at run time only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnyMatrix<'a> {
    pub(crate) raw: sys::ann_matrix,
    pub(crate) life: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for a shared slice of numbers, which is both.
unsafe impl Send for AnyMatrix<'_> {}
unsafe impl Sync for AnyMatrix<'_> {}

impl<'a, T: Element> From<Matrix<'a, T>> for AnyMatrix<'a> {
    fn from(matrix: Matrix<'a, T>) -> Self {
        AnyMatrix { raw: matrix.raw(), life: PhantomData }
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

/// The numbers that vectors and results are made of: the types of [`Element`], `u32`, `u64`, `i32` and
/// [`QueryStatus`].
///
/// # Safety
///
/// Every pattern of bits is a value of the type.
pub unsafe trait Number: Copy + Send + Sync + 'static {}
// SAFETY: plain numbers, and transparent structs of one.
unsafe impl Number for u32 {}
unsafe impl Number for i32 {}
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
