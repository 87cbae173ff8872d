//! Building, searching and reading an index.

mod common;

use common::{built, recall, units, whole_numbers, Whole};
use gannet::*;

/// Brute force in 64-bit floating point; exact for small whole numbers.
fn nearest<T: Whole>(rows: Matrix<T>, query: &[T], k: usize) -> Vec<(f32, u64)> {
    let mut all: Vec<(f32, u64)> = (0..rows.rows())
        .map(|row| {
            let columns = rows.row(row).unwrap().iter().zip(query);
            let sum: f64 = columns.map(|(&x, &q)| (x.value() - q.value()).powi(2)).sum();
            (sum as f32, row as u64)
        })
        .collect();
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.truncate(k);
    all
}

fn exact_equals_brute_force<T: Whole>() {
    let (dim, k) = (13, 7);
    let (data, queries) = (whole_numbers::<T>(1, 300 * dim), whole_numbers::<T>(2, 20 * dim));
    let (rows, queries) = (Matrix::new(&data, dim).unwrap(), Matrix::new(&queries, dim).unwrap());
    let index = built(&data, dim);
    assert_eq!(index.info().unwrap().element, Some(T::TYPE));
    let found = index.search_exact(queries, k, &SearchParams::new()).unwrap();
    assert_eq!((found.rows(), found.k()), (20, k));
    for (q, neighbors) in found.iter().enumerate() {
        let found: Vec<_> = neighbors.iter().map(|near| (near.distance, near.id)).collect();
        assert_eq!(found, nearest(rows, queries.row(q).unwrap(), k), "query {q}");
        assert_eq!(neighbors.status().result(), Ok(()));
    }
    let vector = index.get::<T>(17).unwrap().unwrap();
    assert_eq!(vector.map_bits(), rows.row(17).unwrap().map_bits());
}

/// Debug text stands for the bits, because `Element` has no `PartialEq`.
trait MapBits {
    fn map_bits(&self) -> Vec<String>;
}

impl<T: Element> MapBits for [T] {
    fn map_bits(&self) -> Vec<String> {
        self.iter().map(|value| format!("{value:?}")).collect()
    }
}

#[test]
fn exact_search_of_f32_equals_brute_force() {
    exact_equals_brute_force::<f32>();
}

#[test]
fn exact_search_of_f16_equals_brute_force() {
    exact_equals_brute_force::<F16>();
}

#[test]
fn exact_search_of_bf16_equals_brute_force() {
    exact_equals_brute_force::<Bf16>();
}

#[test]
fn exact_search_of_i8_equals_brute_force() {
    exact_equals_brute_force::<i8>();
}

#[test]
fn exact_search_of_u8_equals_brute_force() {
    exact_equals_brute_force::<u8>();
}

#[test]
fn a_graph_search_finds_what_its_recall_says() {
    let (dim, k) = (12, 10);
    let index = built(&units(1, 6000 * dim), dim);
    let queries = units(2, 200 * dim);
    let queries = Matrix::new(&queries, dim).unwrap();
    let truth = index.search_exact(queries, k, &SearchParams::new()).unwrap();
    for wanted in [0.9, 0.99] {
        let params = SearchParams::new().recall(wanted);
        let found = index.search(queries, k, &params).unwrap();
        let share = recall(found.ids(), truth.ids(), k);
        assert!(share >= f64::from(wanted) - 0.02, "{share} for {wanted}");
        assert!(found.stats().distance_count < truth.stats().distance_count);
        assert!(found.stats().expansion_count > 0);
        assert!(found.stats().recall >= wanted - 1e-4);
        let walks = [Some(Procedure::BestFirst), Some(Procedure::Slack)];
        assert!(walks.contains(&found.stats().procedure));
        assert_eq!(truth.stats().procedure, Some(Procedure::Exact));
        assert_eq!(truth.stats().recall, 1.0);
    }
    let exact = SearchParams::new().procedure(Procedure::Exact);
    assert_eq!(index.search(queries, k, &exact).unwrap().ids(), truth.ids());
}

#[test]
fn a_wider_beam_finds_more() {
    let (dim, k) = (24, 10);
    let index = built(&units(3, 5000 * dim), dim);
    let queries = units(4, 100 * dim);
    let queries = Matrix::new(&queries, dim).unwrap();
    let truth = index.search_exact(queries, k, &SearchParams::new()).unwrap();
    let share = |beam| {
        let found = index.search(queries, k, &SearchParams::new().beam(beam)).unwrap();
        recall(found.ids(), truth.ids(), k)
    };
    assert!(share(10) < share(400));
    assert!(index.beam(k, Some(0.99)).unwrap() >= index.beam(k, None).unwrap());
}

#[test]
fn buffers_of_the_caller_get_the_same() {
    let (dim, k) = (8, 5);
    let index = built(&units(1, 500 * dim), dim);
    let queries = units(2, 30 * dim);
    let queries = Matrix::new(&queries, dim).unwrap();
    let params = SearchParams::new();
    let owned = index.search(queries, k, &params).unwrap();

    let (mut ids, mut distances) = (vec![0; 30 * k], vec![0.0; 30 * k]);
    let (mut counts, mut statuses) = (vec![9; 30], vec![QueryStatus::default(); 30]);
    let mut found = ResultsMut::new(k, &mut ids)
        .distances(&mut distances)
        .counts(&mut counts)
        .statuses(&mut statuses);
    assert_eq!(index.search_into(queries, &mut found, &params).unwrap(), owned.stats());
    assert_eq!((&ids[..], &distances[..]), (owned.ids(), owned.distances()));
    assert_eq!((&counts[..], &statuses[..]), (owned.counts(), owned.statuses()));

    let exact = index.search_exact(queries, k, &params).unwrap();
    index.search_exact_into(queries, &mut ResultsMut::new(k, &mut ids), &params).unwrap();
    assert_eq!(ids, exact.ids());
}

#[test]
fn borrowed_rows_are_searched_in_place() {
    let dim = 8;
    let data = units(1, 1000 * dim);
    let rows = Matrix::new(&data, dim).unwrap();
    let copied = built(&data, dim);
    let borrowed = Index::new(&IndexParams::new(dim)).unwrap();
    borrowed.build_borrowed(rows, None, &BuildParams::new()).unwrap();
    // Before any search: each thread of a search leaves working space behind for the next one, and
    // how many threads find work is chance.
    let held = |index: &Index| index.info().unwrap().memory_bytes;
    assert!(held(&borrowed) + (data.len() * 4) as u64 <= held(&copied));

    let queries = units(2, 20 * dim);
    let queries = Matrix::new(&queries, dim).unwrap();
    let params = SearchParams::new();
    let (a, b) = (copied.search(queries, 5, &params), borrowed.search(queries, 5, &params));
    assert_eq!(a.unwrap().ids(), b.unwrap().ids());
}

#[test]
fn rows_may_lie_apart() {
    let padded = [1.0f32, 2.0, 99.0, 3.0, 4.0, 99.0, 5.0, 6.0];
    let index = Index::new(&IndexParams::new(2)).unwrap();
    let rows = Matrix::strided(&padded, 3, 2, 3).unwrap();
    index.build(rows, &BuildParams::new()).unwrap();
    assert_eq!(index.get::<f32>(2).unwrap(), Some(vec![5.0, 6.0]));
}

#[test]
fn matrices_are_within_their_slice() {
    let data = [0u8; 10];
    assert!(Matrix::new(&data, 0).is_err());
    assert!(Matrix::new(&data, 3).is_err());
    assert!(Matrix::strided(&data, 3, 2, 4).is_ok());
    assert!(Matrix::strided(&data, 3, 3, 4).is_err());
    assert!(Matrix::strided(&data, 3, 3, 0).is_err());
    assert!(Matrix::strided(&data, usize::MAX, 2, usize::MAX).is_err());
    assert!(Matrix::strided(&data, 2, usize::MAX, usize::MAX).is_err());
    assert_eq!(Matrix::new(&data, 5).unwrap().row(2), None);
}

#[test]
fn ids_are_the_callers() {
    let index = Index::new(&IndexParams::new(1)).unwrap();
    let rows = [0.0f32, 5.0, 6.0];
    let rows = Matrix::new(&rows, 1).unwrap();
    index.build_with_ids(rows, &[u64::MAX - 1, 7, 1 << 40], &BuildParams::new()).unwrap();
    let found = index.search(Matrix::one(&[5.6f32]).unwrap(), 3, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [1 << 40, 7, u64::MAX - 1]);
    assert_eq!(index.get::<f32>(7).unwrap(), Some(vec![5.0]));
    assert!(!index.contains(0).unwrap());
}

#[test]
fn rows_of_floats_are_stored_as_another_float() {
    let index = Index::new(&IndexParams::new(2).element(ElementType::F16)).unwrap();
    index.build(Matrix::new(&[1.0f32, 2049.0], 2).unwrap(), &BuildParams::new()).unwrap();
    let stored = index.get::<F16>(0).unwrap().unwrap();
    assert_eq!(stored, [F16::from_f32(1.0), F16::from_f32(2048.0)]);
    let wrong = index.get::<f32>(0).unwrap_err();
    assert_eq!(wrong.status(), Status::InvalidArgument);
}

#[test]
fn an_empty_index_finds_nothing() {
    let index = built::<f32>(&[], 4);
    assert_eq!(index.info().unwrap().rows, 0);
    let params = SearchParams::new();
    for found in [
        index.search(Matrix::one(&[0.0f32; 4]).unwrap(), 2, &params).unwrap(),
        index.search_exact(Matrix::one(&[0.0f32; 4]).unwrap(), 2, &params).unwrap(),
    ] {
        assert_eq!(found.ids(), [ID_NONE, ID_NONE]);
        assert_eq!(found.distances(), [f32::INFINITY; 2]);
        assert_eq!(found.counts(), [0]);
        assert!(found.get(0).unwrap().ids().is_empty());
        assert!(found.get(1).is_none());
    }
}

#[test]
fn no_queries_have_no_neighbours() {
    let index = built(&units(1, 40), 4);
    let none = Matrix::<f32>::new(&[], 4).unwrap();
    let found = index.search(none, 3, &SearchParams::new()).unwrap();
    assert_eq!((found.rows(), found.ids().len(), found.iter().count()), (0, 0, 0));
}

#[test]
fn an_index_tells_its_state() {
    let shape = IndexParams::new(3).metric(Metric::Cosine);
    let index = Index::new(&shape).unwrap();
    let before = index.info().unwrap();
    assert_eq!((before.built, before.rows, before.dim), (false, 0, 3));
    assert_eq!((before.metric, before.element, before.graph), (Some(Metric::Cosine), None, None));

    let data = units(1, 600);
    let params = BuildParams::new().degree(8).seed(42);
    index.build(Matrix::new(&data, 3).unwrap(), &params).unwrap();
    let after = index.info().unwrap();
    assert_eq!((after.built, after.rows, after.degree, after.seed), (true, 200, 8, 42));
    assert_eq!((after.element, after.graph), (Some(ElementType::F32), Some(GraphKind::Cagra)));
    assert!(after.memory_bytes >= 200 * 12);
}

#[test]
fn the_graph_can_be_taken_out_and_measured() {
    let index = Index::new(&IndexParams::new(4)).unwrap();
    let data = units(1, 300 * 4);
    index.build(Matrix::new(&data, 4).unwrap(), &BuildParams::new().degree(8)).unwrap();
    let graph = index.graph().unwrap();
    assert_eq!((graph.degree(), graph.edges().len()), (8, 2400));
    assert!((0..300).all(|row| graph.of(row).iter().all(|&to| to < 300 && to != row as u32)));
    assert!(graph.of(300).is_empty());

    let mut edges = vec![0; 2400];
    assert_eq!(index.graph_into(&mut edges).unwrap(), 8);
    assert_eq!(edges, graph.edges());
    let stats = index.graph_stats().unwrap();
    assert_eq!((stats.rows, stats.degree, stats.unreachable), (300, 8, 0));
    assert_eq!(stats.edges, graph.edges().iter().filter(|&&to| to != ROW_NONE).count() as u64);
    let mean = |rows| index.graph_stats_over(rows).unwrap().two_hop_mean;
    assert!(mean(u32::MAX) == stats.two_hop_mean && mean(40) != stats.two_hop_mean);
}

#[test]
fn parameters_of_cagras_graph_arrive() {
    let data = units(1, 600 * 4);
    let edges = |params: BuildParams| {
        let index = Index::new(&IndexParams::new(4)).unwrap();
        index.build(Matrix::new(&data, 4).unwrap(), &params.degree(8).calibrate(false)).unwrap();
        index.graph().unwrap().edges().to_vec()
    };
    let papers = || BuildParams::new().graph(GraphKind::Cagra);
    let plain = edges(papers());
    assert_eq!(
        plain,
        edges(papers().detours(Detours::Whole).reorder(Reorder::Rank).knn_degree(24))
    );
    assert_ne!(plain, edges(papers().detours(Detours::Near)));
    assert_ne!(plain, edges(papers().reorder(Reorder::Distance)));
    assert_ne!(plain, edges(BuildParams::new()));
}

#[test]
fn a_knn_graph_is_found_and_taken() {
    let dim = 6;
    let data = units(1, 400 * dim);
    let rows = Matrix::new(&data, dim).unwrap();
    let exact = knn_graph(rows, &KnnParams::new(12).method(KnnMethod::Exact)).unwrap();
    let descent = knn_graph(rows, &KnnParams::new(12).method(KnnMethod::NnDescent)).unwrap();
    let same = exact.neighbors().iter().zip(descent.neighbors()).filter(|(a, b)| a == b).count();
    assert!(same * 10 > exact.neighbors().len() * 8, "{same}");
    for method in [KnnMethod::Cells, KnnMethod::Ggnn] {
        let found = knn_graph(rows, &KnnParams::new(12).method(method)).unwrap();
        let same = exact.neighbors().iter().zip(found.neighbors()).filter(|(a, b)| a == b).count();
        assert!(same * 100 > exact.neighbors().len() * 95, "{same}");
    }
    assert!(exact.distances().chunks(12).all(|list| list.is_sorted()));
    assert_eq!(exact.of(399).len(), 12);

    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let params = BuildParams::new().degree(8).knn_graph(exact.neighbors(), 12);
    index.build(rows, &params).unwrap();
    assert_eq!(index.info().unwrap().rows, 400);
}

#[test]
fn a_finished_graph_is_taken_as_it_is() {
    let dim = 6;
    let data = units(1, 400 * dim);
    let rows = Matrix::new(&data, dim).unwrap();
    let built = |params: BuildParams| {
        let index = Index::new(&IndexParams::new(dim)).unwrap();
        index.build(rows, &params).map(|()| index)
    };
    let graph = built(BuildParams::new().degree(8)).unwrap().graph().unwrap();
    let mut edges = graph.edges().to_vec();
    edges.chunks_mut(8).for_each(|row| row.swap(2, 5)); // no build makes this one
    let given = || BuildParams::new().graph(GraphKind::Given).knn_graph(&edges, 8);
    let index = built(given()).unwrap();
    assert_eq!(index.graph().unwrap().edges(), edges);
    assert_eq!(index.info().unwrap().graph, Some(GraphKind::Cagra));
    let found = index.search(rows, 1, &SearchParams::new()).unwrap();
    assert!((0..400).zip(found.ids()).filter(|(row, id)| row == *id).count() >= 380);

    assert_eq!(built(given().degree(4)).err().unwrap().status(), Status::InvalidArgument);
    assert_eq!(
        built(BuildParams::new().graph(GraphKind::Given)).err().unwrap().status(),
        Status::InvalidArgument
    );
    edges[17] = 400;
    let strange = BuildParams::new().graph(GraphKind::Given).knn_graph(&edges, 8);
    assert_eq!(built(strange).err().unwrap().status(), Status::InvalidArgument);
}

#[test]
fn few_rows_leave_places_unused() {
    let graph = knn_graph(Matrix::new(&[0.0f32, 1.0], 1).unwrap(), &KnnParams::new(3)).unwrap();
    assert_eq!(graph.neighbors(), [1, ROW_NONE, ROW_NONE, 0, ROW_NONE, ROW_NONE]);
    assert_eq!((graph.of(0), graph.of(1)), (&[1][..], &[0][..]));
}

#[test]
fn calibration_takes_queries_of_the_caller() {
    let dim = 8;
    let (data, sample) = (units(1, 5000 * dim), units(2, 200 * dim));
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let params = BuildParams::new().calibration(Matrix::new(&sample, dim).unwrap());
    index.build(Matrix::new(&data, dim).unwrap(), &params).unwrap();
    assert!(index.info().unwrap().recall_max > 0.9);
}

#[test]
fn a_plan_bounds_what_a_build_holds() {
    let (dim, rows) = (16, 3000);
    let params = BuildParams::new().threads(1);
    let plan = estimate(&IndexParams::new(dim), rows, ElementType::F32, &params).unwrap();
    assert_eq!(plan.threads, 1);
    assert!(plan.seconds > 0.0);
    let held = built(&units(1, rows * dim), dim).info().unwrap().memory_bytes;
    assert!(held <= plan.peak_bytes, "{held} {plan:?}");
    let limited = BuildParams::new().memory_limit(1000);
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    let data = units(1, rows * dim);
    let error = index.build(Matrix::new(&data, dim).unwrap(), &limited).unwrap_err();
    assert_eq!(error.status(), Status::Limit);
}

#[test]
fn equal_seeds_give_equal_graphs() {
    let data = units(1, 5000 * 4);
    let graph = |threads| {
        let index = Index::new(&IndexParams::new(4)).unwrap();
        let params = BuildParams::new().seed(3).threads(threads).calibrate(false);
        index.build(Matrix::new(&data, 4).unwrap(), &params).unwrap();
        index.graph().unwrap()
    };
    assert!(graph(1) == graph(2));
}

#[test]
fn devices_begin_with_the_cpu() {
    let counted = device_count().unwrap();
    let devices = devices().unwrap();
    assert_eq!(devices.len(), counted.count as usize);
    assert_eq!(counted.reason.is_empty(), counted.count > 1);
    assert_eq!((devices[0].device, &devices[0].name), (Device::Cpu, &cpu().name));
}

fn cpu() -> DeviceInfo {
    let cpu = device_info(Device::Cpu).unwrap();
    assert_eq!((cpu.device, cpu.capability), (Device::Cpu, 0));
    assert!(cpu.compute_units > 0 && cpu.memory_total > 0 && !cpu.name.is_empty());
    cpu
}

#[test]
fn ggnn_takes_its_slack_and_comes_down_through_its_layers() {
    let (data, asked) = (units(3, 2000 * 8), units(4, 20 * 8));
    let (rows, queries) = (Matrix::new(&data, 8).unwrap(), Matrix::new(&asked, 8).unwrap());
    let index = Index::new(&IndexParams::new(8)).unwrap();
    let params = BuildParams::new().graph(GraphKind::Ggnn).build_slack(SlackOf::Squares);
    index.build(rows, &params).unwrap();
    let distances = |params: SearchParams<'_>| {
        index.search(queries, 5, &params).unwrap().stats().distance_count
    };
    let ggnn = || SearchParams::new().procedure(Procedure::Ggnn).stretch(1.3);
    let straight = distances(ggnn());
    assert_eq!(distances(ggnn().slack(SlackOf::Distances).descent(false)), straight);
    assert!(distances(ggnn().slack(SlackOf::Squares)) < straight);
    assert!(distances(ggnn().descent(true)) > straight);
    let error = built(&data, 8).search(queries, 5, &ggnn().descent(true)).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
}
