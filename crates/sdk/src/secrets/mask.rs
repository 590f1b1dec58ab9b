//! Masks secrets in the output of a Step.
//!
//! A secret is masked where it stands as it is, as it stands in a JSON text, and line by line if it has several lines.
//! A Step that writes it in another form, such as in base64, gets past this: masking keeps accidents out of logs, and
//! does not stop a Step that means to give one away.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::Value as Json;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::regular::open_regular;

/// The text that replaces a secret.
const MASKED: &str = "***";

/// The fewest bytes of a text that is masked: a shorter one would mask half a log.
const MASKED_MIN: usize = 4;

/// How often the files are looked through while a command runs.
const EVERY: Duration = Duration::from_millis(200);

/// How much of a file is looked through at a time.
const CHUNK: usize = 256 << 10;

/// How much of its begin a file is known by.
const HEAD: usize = 64;

/// Whoever empties a log holds this for writing, and whoever masks a part of one for reading: so stars come to where
/// the secret is that was read, and to no other text.
pub(crate) static CUTS: RwLock<()> = RwLock::new(());

/// Masks the secrets of a Step.
#[derive(Clone, Default)]
pub(crate) struct SecretMask {
    /// The texts that are masked, the longest first, as one may be a part of another.
    texts: Vec<String>,
}

impl SecretMask {
    pub(super) fn of<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut texts = Vec::new();
        for value in values {
            texts.push(value.to_owned());
            texts.extend(value.lines().map(|line| line.trim_end().to_owned()));
            // As it stands between the quotes of a JSON text.
            texts.push(Json::from(value).to_string().trim_matches('"').to_owned());
        }
        texts.retain(|text| text.len() >= MASKED_MIN);
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        Self { texts }
    }

    /// Whether there is nothing to mask.
    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The text with `***` for each secret.
    pub(crate) fn text(&self, text: String) -> String {
        let hidden = |text: String, secret: &String| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), MASKED),
            false => text,
        };
        self.texts.iter().fold(text, hidden)
    }

    /// A JSON text in which names and texts are masked, and numbers that hold a secret are texts.
    pub(crate) fn json(&self, bytes: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return bytes;
        }
        let masked = serde_json::from_slice(&bytes).map(|value| self.value(value));
        let written = masked.and_then(|masked| serde_json::to_vec(&masked));
        written.unwrap_or_else(|_| Json::from(MASKED).to_string().into_bytes())
    }

    /// What a command asks, with masked texts in its input. Names, ids and numbers stay: they say what is asked.
    pub(crate) fn asked(&self, line: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return line;
        }
        let Ok(mut asked) = serde_json::from_slice::<Json>(&line) else { return line };
        if let Some(input) = asked.get_mut("input") {
            self.texts_in(input);
        }
        serde_json::to_vec(&asked).unwrap_or(line)
    }

    fn texts_in(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.text(std::mem::take(text)),
            Json::Array(all) => all.iter_mut().for_each(|one| self.texts_in(one)),
            Json::Object(fields) => {
                let is_said = |name: &str| {
                    !(name.ends_with("_id") || name.ends_with("_ids") || name == "status")
                };
                fields
                    .iter_mut()
                    .filter(|(name, _)| is_said(name))
                    .for_each(|(_, one)| self.texts_in(one));
            }
            _ => {}
        }
    }

    fn value(&self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.text(text)),
            Json::Array(all) => all.into_iter().map(|one| self.value(one)).collect(),
            Json::Object(fields) => {
                let masked = |(name, value)| (self.text(name), self.value(value));
                Json::Object(fields.into_iter().map(masked).collect())
            }
            Json::Number(number) => {
                let text = number.to_string();
                match self.texts.iter().any(|secret| text.contains(secret.as_str())) {
                    true => Json::from(MASKED),
                    false => Json::Number(number),
                }
            }
            other => other,
        }
    }

    /// Runs work that writes files, and masks these meanwhile and in the end. Other readers may see a secret there for
    /// a moment; afterwards nobody does. The work goes on while a file is looked through: it has its own clocks, such
    /// as a timeout and the look at how long a log is.
    pub(crate) async fn over<T>(self, files: &[&Path], work: impl Future<Output = T>) -> T {
        if self.is_empty() {
            return work.await;
        }
        let files = files.iter().map(|path| MaskedFile::new(path)).collect();
        let masked = MaskedFiles { files, mask: self };
        let (end, ended) = oneshot::channel();
        let work = async move {
            let done = work.await;
            let _ = end.send(()); // Nobody masks any more if the runtime shuts down.
            done
        };
        // Whoever drops this drops the work first, and so the files are masked after its end.
        tokio::join!(work, masked.sweep_until(ended)).0
    }

    /// Puts as many stars over each secret in a part of a file as it has bytes. Answers which bytes have changed.
    fn stars(&self, bytes: &mut [u8]) -> Vec<std::ops::Range<usize>> {
        let mut changed = Vec::new();
        for secret in self.texts.iter().map(String::as_bytes) {
            let mut from = 0;
            while let Some(at) = find(&bytes[from..], secret) {
                let range = from + at..from + at + secret.len();
                bytes[range.clone()].fill(b'*');
                from = range.end;
                changed.push(range);
            }
        }
        changed
    }
}

/// Where a text begins in another.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let (first, rest) = text.split_first()?;
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| byte == first)?;
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Files that a command writes. Dropping this masks what has come since.
struct MaskedFiles {
    mask: SecretMask,
    files: Vec<MaskedFile>,
}

/// A file, and how far it is masked.
struct MaskedFile {
    path: PathBuf,
    from: u64,
    /// How it began when it was masked last.
    head: Vec<u8>,
    /// The log has that it cannot be masked.
    is_told: bool,
}

impl MaskedFiles {
    /// Masks the files again and again, and a last time after the work on them has ended.
    async fn sweep_until(self, mut ended: oneshot::Receiver<()>) {
        let mut masked = self;
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                () = sleep(EVERY) => {}
            }
            // If somebody drops this future now, the last owner of the files masks them.
            let swept = tokio::task::spawn_blocking(move || {
                masked.sweep();
                masked
            });
            masked = match swept.await {
                Ok(masked) => masked,
                Err(_) => return, // The runtime shuts down.
            };
        }
        let _ = tokio::task::spawn_blocking(move || drop(masked)).await;
    }

    fn sweep(&mut self) {
        for file in &mut self.files {
            let Err(error) = file.mask(&self.mask) else { continue };
            if !std::mem::replace(&mut file.is_told, true) {
                let path = file.path.display();
                tracing::warn!(file = %path, %error, "what a command wrote cannot be masked");
            }
        }
    }
}

impl Drop for MaskedFiles {
    fn drop(&mut self) {
        self.sweep();
    }
}

impl MaskedFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), from: 0, head: Vec::new(), is_told: false }
    }

    /// Masks what has come, in place: whoever appends is not disturbed, and what is appended meanwhile is for the next
    /// time.
    fn mask(&mut self, mask: &SecretMask) -> io::Result<()> {
        let file = match open_regular(&self.path, OpenOptions::new().read(true).write(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let end = file.metadata()?.len();
        self.mask_to(end, &file, mask)
    }

    /// Masks up to the length that the file had: a command may write faster than this reads. The next time begins so
    /// far before the end that a secret is found whose end has not come yet. A file that is shorter than before, or
    /// begins otherwise, was emptied meanwhile, as it was too long: all that is in it is new.
    fn mask_to(&mut self, end: u64, file: &File, mask: &SecretMask) -> io::Result<()> {
        let overlap = mask.texts.first().map_or(0, |longest| longest.len() - 1);
        let mut bytes = vec![0; CHUNK.max(2 * overlap)];
        loop {
            let _nobody_empties_it = CUTS.read();
            if file.metadata()?.len() < self.from || !head_of(file)?.starts_with(&self.head) {
                self.from = 0;
            }
            let read = read_at(file, &mut bytes, self.from)?;
            for range in mask.stars(&mut bytes[..read]) {
                file.write_all_at(&bytes[range.clone()], self.from + range.start as u64)?;
            }
            let is_end = read < bytes.len() || self.from + read as u64 >= end;
            self.from += read.saturating_sub(overlap) as u64;
            self.head = head_of(file)?;
            if is_end {
                return Ok(());
            }
        }
    }
}

/// How a file begins.
fn head_of(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let read = read_at(file, &mut head, 0)?;
    head.truncate(read);
    Ok(head)
}

/// Reads as many bytes as there are, up to the length of the buffer.
fn read_at(file: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], from + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    /// What is asked stays what it is, though a secret is a part of an id or a number.
    #[test]
    fn texts_of_what_is_asked_are_masked_and_no_names() {
        let mask = SecretMask::of(["prod", "2024"].into_iter());
        let line = |said: &str| {
            let input = serde_json::json!({"step_id": "deploy-prod", "status": "running", "progress":
                {"percent": 12024, "summary": said}, "checkpoint_refs": [said], "prod": said});
            serde_json::json!({"operation": "prod", "task_id": "prod", "input": input})
        };
        let asked = mask.asked(line("it is prod").to_string().into_bytes());
        assert_eq!(serde_json::from_slice::<Json>(&asked).unwrap(), line("it is ***"));
        assert_eq!(mask.asked(b"prod".to_vec()), b"prod", "it is refused as it is");
    }

    fn mask(values: &[&str]) -> SecretMask {
        SecretMask::of(values.iter().copied())
    }

    #[test]
    fn a_secret_is_masked_as_it_is_and_as_json_has_it() {
        let mask = mask(&["s3cret", "s3cret-longer", "a\"quote", "one\nline two", "abc"]);
        let masked = |text: &str| mask.text(text.to_owned());
        assert_eq!(masked("x s3cret-longer y s3crets"), "x *** y ***s");
        assert_eq!(masked("a\\\"quote a\"quote"), "*** ***");
        assert_eq!(masked("line two, one\nline two"), "***, ***");
        assert_eq!(masked("abc one"), "abc one", "too short to be told from any other text");
        let output = json!({"s3cret": ["s3cret", 1, null], "n": {"a\"quote": true}});
        let hidden = mask.json(serde_json::to_vec(&output).unwrap());
        let expected = json!({"***": ["***", 1, null], "n": {"***": true}});
        assert_eq!(serde_json::from_slice::<Json>(&hidden).unwrap(), expected);
        let escaped = br#""\u0073\u0033cret""#.to_vec();
        assert_eq!(mask.json(escaped), br#""***""#, "however JSON writes it");
    }

    #[test]
    fn a_number_that_is_a_secret_is_masked() {
        let hidden = mask(&["12345678"]).json(b"{\"pin\":12345678,\"n\":1}".to_vec());
        let expected = json!({"pin": "***", "n": 1});
        assert_eq!(serde_json::from_slice::<Json>(&hidden).unwrap(), expected);
    }

    /// A file keeps its length, so that readers keep their places; a secret is found that comes in two parts, and
    /// at any place of a long file.
    #[tokio::test]
    async fn a_file_is_masked_while_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        File::create(&path).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        let work = async {
            file.write_all(b"token: s3cr").unwrap();
            sleep(3 * EVERY).await;
            file.write_all(b"et-value, and more").unwrap();
            while read().contains("s3cret-value") {
                sleep(EVERY).await;
            }
            file.write_all(&vec![b'.'; 2 * CHUNK - 6]).unwrap();
            file.write_all(b"s3cret-value.s3cret-value").unwrap();
        };
        mask(&["s3cret-value"]).over(&[&path, &dir.path().join("none")], work).await;
        let text = read();
        assert!(
            text.starts_with("token: ************, and more...") && !text.contains("s3cret-value")
        );
        assert!(text.ends_with(".************.************"));
        assert_eq!(text.len(), 29 + 2 * CHUNK - 6 + 25);
    }

    /// The work is what ends a command at its timeout: it must not wait for a file that takes long to look through.
    #[tokio::test]
    #[allow(clippy::await_holding_lock)] // This is what holds the masking up.
    async fn work_goes_on_while_a_file_is_masked_and_all_is_masked_once_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, "s3cret-value").unwrap();
        let work = async {
            let nobody_masks = CUTS.write(); // Whoever looks through the file waits for this.
            sleep(3 * EVERY).await;
            std::fs::write(&path, "s3cret-value, and s3cret-value").unwrap();
            drop(nobody_masks);
            "done"
        };
        let mask = mask(&["s3cret-value"]);
        let done = tokio::time::timeout(100 * EVERY, mask.over(&[&path], work)).await;
        assert_eq!(done, Ok("done"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "************, and ************");
    }

    /// A command may write faster than somebody looks: there would be no end.
    #[test]
    fn a_file_that_grows_while_it_is_masked_is_masked_up_to_the_length_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        let mask = mask(&["s3cret-value"]);
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).unwrap();
        file.write_all(&vec![b'.'; 2 * CHUNK]).unwrap();
        file.write_all(b"s3cret-value").unwrap();
        let had = 2 * CHUNK + 12;
        file.write_all(&vec![b'.'; 2 * CHUNK]).unwrap();
        file.write_all(b"s3cret-value").unwrap();
        let writable = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut masked = MaskedFile::new(&path);
        masked.mask_to(had as u64, &writable, &mask).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text[..had].contains("s3cret-value") && text.ends_with("s3cret-value"));
        masked.mask(&mask).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("s3cret-value"));
    }

    /// A worker empties a log that is too long, and the command goes on at its begin.
    #[test]
    fn what_is_written_to_a_file_that_was_emptied_is_masked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        let mask = mask(&["s3cret-value"]);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(&vec![b'.'; 3 * CHUNK]).unwrap();
        let mut masked = MaskedFile::new(&path);
        masked.mask(&mask).unwrap();
        assert!(masked.from > 2 * CHUNK as u64, "{}", masked.from);
        file.set_len(0).unwrap();
        for (more, text) in [
            ("token: s3cret-va", "token: s3cret-va"),
            ("lue, s3cret-value.", "token: ************, ************."),
        ] {
            file.write_all(more.as_bytes()).unwrap();
            masked.mask(&mask).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
    /// The command writes faster than somebody looks: the log is as long as before, and holds other text.
    #[test]
    fn a_file_that_was_emptied_and_has_grown_again_is_masked_from_its_begin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        let mask = mask(&["s3cret-value"]);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(&[b'.'; 4 * HEAD]).unwrap();
        let mut masked = MaskedFile::new(&path);
        masked.mask(&mask).unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"[tenure: 256 bytes before this line were dropped]\ns3cret-value\n")
            .unwrap();
        file.write_all(&[b'.'; 8 * HEAD]).unwrap();
        masked.mask(&mask).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n************\n") && !text.contains("s3cret"), "{text}");
    }

    /// A command can replace its log by a link to a file that nobody is to write stars into.
    #[test]
    fn a_file_to_which_a_log_is_a_link_is_not_masked() {
        let dir = tempfile::tempdir().unwrap();
        let (log, other) = (dir.path().join("stdout.log"), dir.path().join("other"));
        std::fs::write(&other, "s3cret-value").unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        assert!(MaskedFile::new(&log).mask(&mask(&["s3cret-value"])).is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "s3cret-value");
    }
}
