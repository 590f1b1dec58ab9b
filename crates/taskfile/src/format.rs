//! The notations of task files, and how the reader detects the notation of a file.

use serde::Serialize;

/// The notation of a task file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// YAML 1.2.
    Yaml,
    /// TOML 1.1.
    Toml,
    /// JSON.
    Json,
    /// A recorded workflow of WfCommons, WfFormat 1.5, in JSON.
    WfFormat,
}

impl FileFormat {
    /// Detects it by the extension of the file's name, or else by the beginning of the text.
    pub(super) fn detect(name: &str, text: &str) -> Self {
        FileFormat::of_name(name).unwrap_or_else(|| FileFormat::of_text(text))
    }

    fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(FileFormat::Yaml),
            "toml" => Some(FileFormat::Toml),
            "json" => Some(FileFormat::Json),
            _ => None,
        }
    }

    /// JSON begins with a brace. TOML's first line that is not empty and no comment is a table, or
    /// has a key and `=`; everything else is YAML.
    fn of_text(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        match lines.find(|line| !line.is_empty() && !line.starts_with('#')) {
            Some(line) if line.starts_with('{') => FileFormat::Json,
            Some(line) if line.starts_with('[') || is_assignment(line) => FileFormat::Toml,
            _ => FileFormat::Yaml,
        }
    }
}

fn is_assignment(line: &str) -> bool {
    line.split_once('=').is_some_and(|(key, _)| {
        let in_key = |c: char| c.is_ascii_alphanumeric() || "-_.\"' ".contains(c);
        !key.trim().is_empty() && key.chars().all(in_key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides_before_the_content() {
        assert_eq!(FileFormat::detect("a.YML", "{}"), FileFormat::Yaml);
        assert_eq!(FileFormat::detect("dir.toml/a.json", "x: 1"), FileFormat::Json);
        assert_eq!(FileFormat::detect("a.b.toml", ""), FileFormat::Toml);
    }

    #[test]
    fn content_decides_where_the_name_says_nothing() {
        let cases = [
            ("  {\"steps\": []}", FileFormat::Json),
            ("# comment\n\ntask_id = \"x\"", FileFormat::Toml),
            ("[defaults]\n", FileFormat::Toml),
            ("\"quoted key\" = 1", FileFormat::Toml),
            ("---\ntask_id: a", FileFormat::Yaml),
            ("run: a=b", FileFormat::Yaml),
            ("", FileFormat::Yaml),
        ];
        for (text, expected) in cases {
            assert_eq!(FileFormat::detect("-", text), expected, "{text}");
        }
    }
}
