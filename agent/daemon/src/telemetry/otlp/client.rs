//! The HTTP client of the exporters, which keeps what they swallow: why a request failed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use crate::error::chain;

/// Longest answer that is read.
const ANSWER_MAX: usize = 1 << 20;

/// Why the last request failed, as the client put it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Why(Arc<Mutex<Option<String>>>);

impl Why {
    fn set(&self, why: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Takes it.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An HTTP client. Its futures need the runtime's reactor.
#[derive(Debug)]
pub(super) struct Client {
    inner: reqwest::Client,
    why: Why,
}

impl Client {
    pub(super) const fn new(inner: reqwest::Client, why: Why) -> Self {
        Self { inner, why }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut answer = self.inner.execute(request.try_into()?).await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await? {
            if body.len() + part.len() > ANSWER_MAX {
                return Err(format!("the answer has more than {ANSWER_MAX} bytes").into());
            }
            body.extend_from_slice(&part);
        }
        Ok(response.body(body.into())?)
    }
}

// Written out: the trait has this form, and nothing else here needs the macro that makes it.
impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let sent = self.send(request).await;
            if let Err(error) = &sent {
                self.why.set(chain(&**error));
            }
            sent
        })
    }
}
