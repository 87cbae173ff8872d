//! Arrays of the `ndarray` crate as rows and queries.

use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams, Status};
use ndarray::{array, s, Array1, Array2, Axis};

#[test]
fn views_in_standard_layout_are_taken() {
    let table = array![[0.0f32, 0.0], [3.0, 4.0], [6.0, 8.0]];
    let index = Index::new(&IndexParams::new(2)).unwrap();
    index.build_borrowed(table.view().try_into().unwrap(), None, &BuildParams::new()).unwrap();
    let queries = array![[3.0f32, 3.0]];
    let queries = Matrix::try_from(queries.view()).unwrap();
    let found = index.search(queries, 2, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [1, 0]);
}

#[test]
fn rows_may_be_left_out_and_cut() {
    let table = Array2::from_shape_fn((40, 9), |(row, column)| (row * 9 + column) as f32);
    for (rows, columns) in [(1, 0..9), (2, 0..9), (3, 2..7), (1, 8..9), (39, 0..1), (40, 3..9)] {
        let view = table.slice(s![..;rows, columns]);
        let matrix = Matrix::try_from(view).unwrap();
        assert_eq!((matrix.rows(), matrix.dim()), view.dim());
        for (number, row) in view.outer_iter().enumerate() {
            assert_eq!(matrix.row(number).unwrap(), row.to_vec());
        }
        assert_eq!(matrix.row(matrix.rows()), None);
        // The library sees the same rows.
        let index = Index::new(&IndexParams::new(matrix.dim())).unwrap();
        index.build(matrix, &BuildParams::new()).unwrap();
        for (number, row) in view.outer_iter().enumerate() {
            assert_eq!(index.get::<f32>(number as u64).unwrap().unwrap(), row.to_vec());
        }
        let found = index.search_exact(matrix, 1, &SearchParams::new()).unwrap();
        assert!(found.ids().iter().copied().eq(0..matrix.rows() as u64));
    }
}

#[test]
fn half_of_an_array_that_another_writes_to() {
    let mut table = Array2::<f32>::zeros((30, 6));
    let (left, mut right) = table.view_mut().split_at(Axis(1), 3);
    let rows = Matrix::try_from(left.view()).unwrap();
    let index = Index::new(&IndexParams::new(3)).unwrap();
    index.build(rows, &BuildParams::new()).unwrap();
    right.fill(f32::NAN);
    assert_eq!(rows.row(29), Some(&[0.0; 3][..]));
}

#[test]
fn one_dimension_is_one_row() {
    let vector = Array1::from_iter([1u8, 2, 3]);
    let row = Matrix::try_from(vector.view()).unwrap();
    assert_eq!((row.rows(), row.row(0)), (1, Some(&[1, 2, 3][..])));
    let table = array![[1u8, 2], [3, 4]];
    assert!(Matrix::try_from(table.column(0)).is_err());
    assert!(Matrix::try_from(Array1::<u8>::zeros(0).view()).is_err());
}

#[test]
fn other_layouts_are_errors() {
    let table = Array2::<f32>::zeros((3, 4));
    for view in [
        table.t(),
        table.slice(s![.., ..;2]),
        table.slice(s![.., ..;-1]),
        table.slice(s![..;-1, ..]),
        table.slice(s![..1, ..]).broadcast((3, 4)).unwrap(),
    ] {
        assert_eq!(Matrix::try_from(view).unwrap_err().status(), Status::InvalidArgument);
    }
    assert_eq!(Matrix::try_from(table.slice(s![1.., ..])).unwrap().rows(), 2);
    assert!(Matrix::try_from(Array2::<u8>::zeros((2, 0)).view()).is_err());
    assert_eq!(Matrix::try_from(Array2::<u8>::zeros((0, 2)).view()).unwrap().rows(), 0);
}
