//! Answers searches of one index over HTTP.
//!
//!     cargo run --release --bin service -- [-address 127.0.0.1:8080] index.gannet
//!
//!     POST /search   {"vector": [...], "k": 10, "recall": 0.95}   k and recall may be left out
//!                    answers {"ids": [...], "distances": [...]}
//!     GET /metrics   counts and times, as Prometheus reads them
//!     GET /healthz   "ok"
//!
//! On SIGTERM or Ctrl-C it takes no more requests, answers those that it has, and ends with success.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gannet::{
    ElementType, Index, IndexInfo, Matrix, Monitor, OpenParams, Results, SearchParams, Status,
};
use serde::Deserialize;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiny_http::{Header, Method, Request, Response, Server};

const K_MAX: usize = 1000; // results take memory, found or not
const BODY_MAX: u64 = 1 << 20; // bytes
const TIME_LIMIT: Duration = Duration::from_secs(2); // of a search
const LINGER: Duration = Duration::from_millis(100); // without a request, before it ends

fn main() -> Result<(), Box<dyn Error>> {
    let (address, path) = arguments()?;
    let index = Index::open(&path, &OpenParams::new())?;
    let info = index.info()?;
    let server = Arc::new(Server::http(&address).map_err(|error| error as Box<dyn Error>)?);
    println!("{} rows of {}; listening on {}", info.rows, info.dim, server.server_addr());

    // One thread answers one request at a time; further requests wait in the server.
    let workers = thread::available_parallelism()?.get();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let service = Service { index, info, counts: Counts::default() };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Ok(request) = server.recv() {
                    service.answer(request);
                }
            });
        }
        signals.forever().next();
        // Each wakes one worker, when that has answered what it is at.
        (0..workers).for_each(|_| server.unblock());
    });
    // Requests that were waiting when the last worker left: dropped with the server they would get a 500.
    let end = Instant::now() + TIME_LIMIT;
    while let Ok(Some(request)) = server.recv_timeout(LINGER) {
        service.answer(request);
        if Instant::now() >= end {
            break;
        }
    }
    Ok(())
}

fn arguments() -> Result<(String, String), Box<dyn Error>> {
    let mut address = "127.0.0.1:8080".to_owned();
    let mut rest = std::env::args().skip(1);
    let mut path = None;
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-address" | "--address" => address = rest.next().ok_or("-address HOST:PORT")?,
            _ => path = Some(word),
        }
    }
    Ok((address, path.ok_or("usage: service [-address HOST:PORT] index.gannet")?))
}

struct Service {
    index: Index<'static>,
    info: IndexInfo,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    running: AtomicU64,
    nanoseconds: AtomicU64,
    distances: AtomicU64,
}

/// What a client asks.
#[derive(Deserialize)]
struct Query {
    vector: Vec<f32>,
    k: Option<usize>,
    recall: Option<f32>,
}

/// A status of HTTP with a text.
struct Failure(u16, String);

impl From<gannet::Error> for Failure {
    fn from(error: gannet::Error) -> Self {
        let status = match error.status() {
            Status::InvalidArgument | Status::Limit | Status::NotFinite => 400,
            Status::Deadline => 504,
            _ => 500,
        };
        Failure(status, error.to_string())
    }
}

impl Service {
    fn answer(&self, mut request: Request) {
        let path = request.url().split('?').next().unwrap_or_default().to_owned();
        let outcome = match (request.method(), path.as_str()) {
            (Method::Post, "/search") => self.measured(&mut request),
            (Method::Get, "/metrics") => Ok(self.metrics()),
            (Method::Get, "/healthz") => Ok("ok\n".to_owned()),
            _ => Err(Failure(404, "no such page".to_owned())),
        };
        let (status, text) = match outcome {
            Ok(text) => (200, text),
            Err(Failure(status, text)) => (status, text + "\n"),
        };
        let kind = if text.starts_with('{') { "application/json" } else { "text/plain" };
        let mut response = Response::from_string(text).with_status_code(status);
        if let Ok(header) = Header::from_bytes("Content-Type", kind) {
            response.add_header(header);
        }
        let _ = request.respond(response); // the client may have gone away
    }

    fn measured(&self, request: &mut Request) -> Result<String, Failure> {
        let (start, counts) = (Instant::now(), &self.counts);
        counts.running.fetch_add(1, Relaxed);
        let outcome = self.search(request);
        counts.running.fetch_sub(1, Relaxed);
        counts.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        let count = match &outcome {
            Ok(_) => &counts.answered,
            Err(Failure(status, _)) if *status < 500 => &counts.refused,
            Err(_) => &counts.failed,
        };
        count.fetch_add(1, Relaxed);
        outcome
    }

    fn search(&self, request: &mut Request) -> Result<String, Failure> {
        let refuse = |text: String| Failure(400, text);
        let mut body = Vec::new();
        let mut bounded = request.as_reader().take(BODY_MAX + 1);
        bounded.read_to_end(&mut body).map_err(|error| refuse(error.to_string()))?;
        if body.len() as u64 > BODY_MAX {
            return Err(Failure(413, format!("more than {BODY_MAX} bytes")));
        }
        let query: Query =
            serde_json::from_slice(&body).map_err(|error| refuse(error.to_string()))?;
        let k = query.k.unwrap_or(10);
        if k == 0 || k > K_MAX {
            return Err(refuse(format!("k is {k}, not in 1 to {K_MAX}")));
        }
        let (given, dim) = (query.vector.len(), self.info.dim);
        if given != dim {
            return Err(refuse(format!("the vector has {given} numbers, the index {dim} columns")));
        }
        let monitor = Monitor::new()?;
        monitor.set_deadline(TIME_LIMIT);
        let mut params = SearchParams::new().monitor(&monitor);
        if let Some(recall) = query.recall {
            params = params.recall(recall);
        }
        let found = self.ask(&query.vector, k, &params)?;
        self.counts.distances.fetch_add(found.stats().distance_count, Relaxed);
        let near = found.get(0).ok_or_else(|| Failure(500, "no answer".to_owned()))?;
        near.status().result().map_err(|status| refuse(status.to_string()))?;
        Ok(json!({"ids": near.ids(), "distances": near.distances()}).to_string())
    }

    /// An index of bytes is asked with bytes.
    fn ask(&self, vector: &[f32], k: usize, params: &SearchParams<'_>) -> gannet::Result<Results> {
        match self.info.element {
            Some(ElementType::U8) => {
                let bytes: Vec<u8> = vector.iter().map(|&x| x as u8).collect();
                self.index.search(Matrix::one(&bytes)?, k, params)
            }
            Some(ElementType::I8) => {
                let bytes: Vec<i8> = vector.iter().map(|&x| x as i8).collect();
                self.index.search(Matrix::one(&bytes)?, k, params)
            }
            _ => self.index.search(Matrix::one(vector)?, k, params),
        }
    }

    fn metrics(&self) -> String {
        let (counts, info) = (&self.counts, &self.info);
        let of = |count: &AtomicU64| count.load(Relaxed);
        format!(
            "# TYPE gannet_searches_total counter\n\
             gannet_searches_total{{outcome=\"answered\"}} {}\n\
             gannet_searches_total{{outcome=\"refused\"}} {}\n\
             gannet_searches_total{{outcome=\"failed\"}} {}\n\
             # TYPE gannet_search_seconds_total counter\n\
             gannet_search_seconds_total {}\n\
             # TYPE gannet_distances_total counter\n\
             gannet_distances_total {}\n\
             # TYPE gannet_searches_running gauge\n\
             gannet_searches_running {}\n\
             # TYPE gannet_rows gauge\n\
             gannet_rows {}\n\
             # TYPE gannet_memory_bytes gauge\n\
             gannet_memory_bytes {}\n",
            of(&counts.answered),
            of(&counts.refused),
            of(&counts.failed),
            Duration::from_nanos(of(&counts.nanoseconds)).as_secs_f64(),
            of(&counts.distances),
            of(&counts.running),
            info.rows,
            info.memory_bytes
        )
    }
}
