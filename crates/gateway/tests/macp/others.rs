//! Tasks that are no sessions, beside those that are.

use tenure_sdk::client::{Step, Task};

use crate::agent::{code, request, start};
use crate::site::Site;

/// A Task with the id of a session that is none is no session, and none can begin there.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_task_is_no_session() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let planner = gateway.agent("planner").await;
    let id = uuid::Uuid::new_v4().to_string();
    let task = Task::new("mine").id(&id).step(Step::new("a"));
    site.client().create(task).await.unwrap();
    assert_eq!(planner.refused(&id, "TaskRequest", &request("")).await, "SESSION_NOT_FOUND");
    let begins = planner.envelope(&id, "SessionStart", &start(&["ann"]));
    assert_eq!(code(&planner.send(begins).await), "SESSION_ALREADY_EXISTS");
    assert_eq!(
        site.client().facts(&id.parse().unwrap(), Default::default()).await.unwrap().facts.len(),
        0
    );
}
