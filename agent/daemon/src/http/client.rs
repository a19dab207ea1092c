//! Asks the agent of this node, by its socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::SOCKET;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Why the agent did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no agent runs with the state directory {}: start `inflightd run`, or name the agent's \
         with --state-dir",
        .0.display()
    )]
    Nobody(PathBuf),
    /// The socket is for root.
    #[error("{} may be opened by root only: run this as root", .0.display())]
    Denied(PathBuf),
    /// The connection failed.
    #[error("asking the agent at {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It takes connections and does not answer.
    #[error("the agent at {} did not answer within 10 s", .0.display())]
    Late(PathBuf),
}

/// What the agent answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Gets a path, such as `/rooms`, from the agent with this state directory.
pub fn get(state_dir: &Path, path: &str) -> Result<Answered, ClientError> {
    ask(state_dir, Method::GET, path)
}

/// Posts to a path, such as `/fail`.
pub fn post(state_dir: &Path, path: &str) -> Result<Answered, ClientError> {
    ask(state_dir, Method::POST, path)
}

fn ask(state_dir: &Path, method: Method, path: &str) -> Result<Answered, ClientError> {
    let socket = state_dir.join(SOCKET);
    let io = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Io {
        path: socket.clone(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| io(error.into()))?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(PATIENCE, async {
            let stream =
                UnixStream::connect(&socket).await.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        ClientError::Nobody(state_dir.to_owned())
                    }
                    io::ErrorKind::PermissionDenied => ClientError::Denied(socket.clone()),
                    _ => io(error.into()),
                })?;
            exchange(stream, method, path).await.map_err(io)
        });
        asked.await.unwrap_or_else(|_late| Err(ClientError::Late(socket.clone())))
    })
}

async fn exchange(
    stream: UnixStream,
    method: Method,
    path: &str,
) -> Result<Answered, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "inflightd");
    let request = request.body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await?;
    connection.abort();
    Ok(Answered { status, body: body.to_bytes().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_agent_the_remedy_is_named() {
        let state = tempfile::tempdir().unwrap();
        let told = get(state.path(), "/rooms").unwrap_err().to_string();
        assert!(told.contains("start `inflightd run`") && told.contains("--state-dir"), "{told}");
        // A socket whose agent was killed.
        drop(std::os::unix::net::UnixListener::bind(state.path().join(SOCKET)).unwrap());
        assert!(matches!(get(state.path(), "/rooms"), Err(ClientError::Nobody(_))));
    }
}
