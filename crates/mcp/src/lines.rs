//! Input that comes as lines, with those rewritten that the SDK would not read whole
//! ([`listening_to_tasks`](crate::offers::listening_to_tasks)).

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream, duplex,
};
use tokio_util::task::AbortOnDropHandle;

use crate::offers::listening_to_tasks;

/// The longest line that may be rewritten. Longer ones are passed on as they come.
const REWRITTEN_MAX: usize = 64 << 10;

/// The same input, with such lines rewritten. It is passed on until the handle is dropped.
pub(crate) fn rewritten<R>(input: R) -> (DuplexStream, AbortOnDropHandle<()>)
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let (near, far) = duplex(REWRITTEN_MAX);
    let passing = tokio::spawn(async move {
        if let Err(error) = pass(BufReader::with_capacity(REWRITTEN_MAX, input), far).await {
            tracing::debug!(%error, "the input has ended");
        }
    });
    (near, AbortOnDropHandle::new(passing))
}

async fn pass<R: AsyncRead + Unpin>(
    mut input: BufReader<R>,
    mut output: DuplexStream,
) -> std::io::Result<()> {
    // The part of a line that has come, as long as the line may have to be rewritten.
    let (mut line, mut is_long) = (Vec::new(), false);
    loop {
        let read = input.fill_buf().await?;
        if read.is_empty() {
            return output.write_all(&line).await;
        }
        let end = read.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(read.len());
        line.extend_from_slice(&read[..taken]);
        input.consume(taken);
        is_long |= line.len() > REWRITTEN_MAX;
        if end.is_none() && !is_long {
            continue;
        }
        match listening_to_tasks(&line).filter(|_| !is_long) {
            Some(mut other) => {
                other.push(b'\n');
                output.write_all(&other).await?;
            }
            None => output.write_all(&line).await?,
        }
        line.clear();
        is_long &= end.is_none();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn passed(input: &[u8]) -> String {
        let (mut near, _passing) = rewritten(std::io::Cursor::new(input.to_vec()));
        let mut text = String::new();
        near.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Every byte comes through, in whatever lines it stands; only what listens to tasks is another line.
    #[tokio::test]
    async fn lines_come_through() {
        let long = format!("{{\"a\":\"{}\"}}\n", "x".repeat(3 * REWRITTEN_MAX));
        let listen =
            r#"{"method":"subscriptions/listen","params":{"notifications":{"taskIds":["t"]}}}"#;
        let other = r#"{"method":"subscriptions/listen","params":{"notifications":{}}}"#;
        for text in [
            "",
            "\n",
            "{}\n{}\n",
            "{}\r\n",
            "half a line",
            &long,
            &format!("{long}{other}\n{long}"),
        ] {
            assert_eq!(passed(text.as_bytes()).await, text);
        }
        let text = passed(format!("{long}{listen}\n{{}}\n").as_bytes()).await;
        let rest = text.strip_prefix(&long).unwrap();
        assert!(rest.contains("dev.tenure/") && rest.ends_with("}\n{}\n"), "{rest}");
    }
}
