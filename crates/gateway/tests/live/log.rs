//! The log of a Task as bytes.

use hyper::StatusCode;
use tenure_ports::ClientPort as _;
use tenure_sdk::client::{Step, Task};

use super::house::House;
use super::http::{bytes, get, json};

/// The lines are those of the log file, byte for byte, over more than one page.
#[tokio::test]
async fn the_log_is_what_the_file_has() {
    let house = House::open().await;
    let summary = "x".repeat(4_000);
    let step = |number: usize| {
        let step = Step::new(&format!("s{number}")).summary(&summary).handler("echo");
        if number == 0 { step } else { step.after(&format!("s{}", number - 1)) }
    };
    let task = house.client.create(Task::new("long").steps((0..200).map(step))).await.unwrap();
    house.client.wait_for_end(&task).await.unwrap();
    let page = house.client.port().log(&task, 0).await.unwrap();
    assert!(page.more, "it has more than one page");
    let file = std::fs::read(page.wal_path.unwrap()).unwrap();
    let path = House::path(&task, "/log");
    let response = get(house.address, &path, &[]).await;
    assert_eq!(response.headers()["content-type"], "application/jsonl");
    assert_eq!(bytes(response).await.unwrap(), file);

    let first = page.commits[0].last_seq();
    let rest = bytes(get(house.address, &format!("{path}?after={first}"), &[]).await).await;
    assert!(file.ends_with(&rest.unwrap()));
    let version = page.version;
    let none = bytes(get(house.address, &format!("{path}?after={version}"), &[]).await).await;
    assert_eq!(none.unwrap(), "");
    for after in ["1".to_owned(), (version + 1).to_string(), "x".to_owned()] {
        let (status, problem) =
            json(get(house.address, &format!("{path}?after={after}"), &[]).await).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{after}");
        assert_eq!(problem["details"]["field"], "after", "{problem}");
    }
}
