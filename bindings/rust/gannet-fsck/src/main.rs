//! The program `gannet-fsck`.

use std::env::args_os;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gannet_fsck::{check_file, json_text, Problem};

const USAGE: &str = "\
usage: gannet-fsck [--json] FILE...

Checks files of Gannet indexes: every sum, every length, every value. It shares no code with the
library that writes them. Prints one line a file, or with --json one object a file.

exit status: 0  all files are in order
             1  a file is damaged, or of a version of the format that is not known here
             2  a file could not be read, or the command line makes no sense
";

struct Order {
    json: bool,
    files: Vec<PathBuf>,
}

enum Request {
    Help,
    Check(Order),
}

fn read_arguments(arguments: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let mut order = Order { json: false, files: Vec::new() };
    let mut options = true;
    for argument in arguments {
        match argument.to_str() {
            Some("--") if options => options = false,
            Some("--help" | "-h") if options => return Ok(Request::Help),
            Some("--json") if options => order.json = true,
            Some(option) if options && option.starts_with('-') => {
                return Err(format!("unknown option {option}"));
            }
            _ => order.files.push(argument.into()),
        }
    }
    if order.files.is_empty() {
        return Err("no file is named".into());
    }
    Ok(Request::Check(order))
}

/// Checks one file, prints its line, and gives the exit status that it asks for.
fn report(path: &Path, json: bool, out: &mut impl Write) -> io::Result<u8> {
    let checked = check_file(path);
    if json {
        writeln!(out, "{}", json_text(path, &checked))?;
    } else {
        match &checked {
            Ok(summary) => writeln!(out, "{}: {summary}", path.display())?,
            Err(problem) => writeln!(out, "{}: {problem}", path.display())?,
        }
    }
    Ok(match checked {
        Ok(_) => 0,
        Err(Problem::Damaged { .. } | Problem::Version(_)) => 1,
        Err(Problem::Unreadable(_)) => 2,
    })
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let outcome = match read_arguments(args_os().skip(1)) {
        Ok(Request::Help) => out.write_all(USAGE.as_bytes()).map(|()| 0),
        Ok(Request::Check(order)) => order
            .files
            .iter()
            .try_fold(0, |worst: u8, path| Ok(worst.max(report(path, order.json, &mut out)?))),
        Err(what) => {
            // Where not even stderr takes it, the exit status remains.
            let _ = write!(io::stderr(), "gannet-fsck: {what}\n{USAGE}");
            Ok(2)
        }
    };
    ExitCode::from(outcome.unwrap_or(2))
}
