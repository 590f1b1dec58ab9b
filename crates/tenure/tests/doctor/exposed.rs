//! What others can read, and doors that ask nobody.

use std::path::Path;

use crate::servers::redis;
use crate::{Set, verdicts, watched_nats};

/// What lets somebody in who must not be: a file of passwords that others read, a server without bounds, a data
/// directory that others look into, an API that asks nobody. The first is bad, and nothing of the file is shown.
#[test]
fn what_lets_others_in_is_found() {
    use std::os::unix::fs::PermissionsExt as _;
    let (nats, monitor) = watched_nats("");
    let set = Set::of(nats, redis(&[]));
    let path = set.place.file("tenure.toml", "node = \"s3cret-node\"\nhttp = \"127.0.0.1:9\"\n");
    let data = set.place.path("tasks");
    std::fs::create_dir(&data).unwrap();
    let chmod = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let file = path.to_str().unwrap();
    let args = ["--config", file, "--nats-monitor", &monitor, "--data", data.to_str().unwrap()];
    for (mode, verdict, code) in [(0o644, "bad", 1), (0o600, "good", 0)] {
        chmod(&path, mode);
        chmod(&data, 0o755);
        let _node = (code == 0).then(|| set.node());
        let ended = match code {
            0 => set.until(&[("nodes", "good"), ("partitions.owners", "good")], &args),
            _ => set.doctor(&args),
        }
        .with(code);
        let found = verdicts(&ended);
        assert_eq!(found["files.secrets"], verdict, "{ended:#?}");
        assert_eq!(
            (&*found["files.data"], &*found["http.callers"]),
            ("caution", "caution"),
            "{ended:#?}"
        );
        assert_eq!(
            found["nats.limits"], "caution",
            "the server of tests bounds nothing: {ended:#?}"
        );
    }
    chmod(&data, 0o700);
    assert_eq!(verdicts(&set.doctor(&args))["files.data"], "good");
    set.place.file("tenure.toml", "journal_user = \"j\"\njournal_password = 5353535353\n");
    let refused = set.doctor(&args).with(2);
    assert!(refused.stderr.contains("line 2") && !refused.stderr.contains("53535"), "{refused:#?}");
}
