//! What a worker is shown whose offer comes late, by the product and by the model.

use futures::StreamExt as _;
use serde_json::json;
use tenure_core::Command;
use tenure_core::command::Why;
use tenure_core::id::CommandId;
use tenure_ports::bus::Credit;

use super::notes::Look;
use super::*;

/// VIEW-16, QUERY-16: in a Task that gives nothing out a worker is shown no Step, though some are ready, and under a
/// Run that has ended it is refused: the offer was on its way meanwhile, as it is where workers have much to read.
#[tokio::test(start_paused = true)]
async fn who_comes_too_late_is_shown_nothing() {
    let config = Config::embedded("default".parse().unwrap());
    let (journal, leases) = (Arc::<Journal>::default(), Arc::<MemoryLeases>::default());
    let here = Here(Scheduler::start(journal, leases, config).await.unwrap());
    let client = here.client().await;
    let input = json!({"task_id": "t", "title": "t", "summary": "", "dispatch": "manual",
        "steps": [{"step_id": "step00z", "title": "text00z", "summary": ""}]});
    let id = CommandId::new(uuid::Uuid::now_v7().to_string()).unwrap();
    client.create_as(id, serde_json::from_value(input).unwrap()).await.unwrap();
    let (port, mut inbox) = here.join("ant", "default").await;
    port.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let given = json!({"worker_pool_id": "default"});
    does(&client, Command::DispatchWorker(serde_json::from_value(given).unwrap())).await;
    let Some(Delivery::Run(offer)) = inbox.next().await else { panic!("an offer comes") };
    let books = Books::default();
    let program = Program::new(client, "t", &books, 0);
    let asks = async || {
        let page = port.query(&offer, 0).await.unwrap();
        let shown: Vec<String> = page.steps.iter().map(|s| s.spec.step_id.to_string()).collect();
        let (version, said) = (page.version, serde_json::to_value(&page).unwrap());
        let (run, ready) = (Some(offer.run_id.to_string()), Some(shown.clone()));
        program.notes.looks.lock().push(Look { run, version, said, ready });
        shown
    };
    assert_eq!(asks().await, ["step00z"]);
    does(&program.client, Command::PauseTask(Why::default())).await;
    assert!(asks().await.is_empty(), "nothing is given out");
    does(&program.client, Command::ResumeTask(Why::default())).await;
    assert_eq!(asks().await, ["step00z"]);
    port.leave(&offer, None, None).await.unwrap();
    let refused = port.query(&offer, 0).await.unwrap_err();
    assert_eq!(refused.code, tenure_core::Code::RunEnded, "{refused}");
    let judged = check(&program.notes, &Commit::all(&program.log().await));
    assert_eq!(judged.looks, 3);
    here.0.stop().await;
}

async fn does<C: ClientPort>(client: &Client<C>, command: Command) {
    client.command(&"t".parse().unwrap(), command).await.unwrap();
}
