//! A node of the Ockam Rust crates, to talk to.
//!
//! ```text
//! onward-ockam-peer serve PORT               answer on 127.0.0.1:PORT (0 picks a port) until killed
//! onward-ockam-peer call ADDR ROUTE TEXT [N]  send TEXT to ROUTE at ADDR, N times (once)
//! ```
//!
//! `serve` prints `ready PORT` and has three workers: `echoer`, the library's, which takes a
//! String (length-prefixed) and sends it back; `raw`, which sends any payload back untouched;
//! `hop`, which passes a message on to the next address of its route.
//!
//! `call` exits with 0 if each answer equals TEXT, 1 if one differs, 2 if one never came.

use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ockam_core::{worker, Any, NeutralMessage, Result, Route, Routed, Worker};
use ockam_node::workers::Echoer;
use ockam_node::{Context, MessageSendReceiveOptions, NodeBuilder};
use ockam_transport_tcp::{TcpConnectionOptions, TcpListenerOptions, TcpTransport};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const USAGE: &str = "usage: onward-ockam-peer serve PORT | call ADDR ROUTE TEXT [N]";

/// Sends every payload back along the return route, byte for byte.
struct Raw;

#[worker]
impl Worker for Raw {
    type Context = Context;
    type Message = Any;

    async fn handle_message(&mut self, ctx: &mut Context, message: Routed<Any>) -> Result<()> {
        let return_route = message.return_route().clone();
        let payload = NeutralMessage::from(message.into_payload());
        ctx.send(return_route, payload).await
    }
}

/// Takes itself off the onward route, puts itself on the return route, and passes the message on.
struct Hop;

#[worker]
impl Worker for Hop {
    type Context = Context;
    type Message = Any;

    async fn handle_message(&mut self, ctx: &mut Context, message: Routed<Any>) -> Result<()> {
        let own_address = ctx.primary_address().clone();
        let message = message.into_local_message().step_forward(own_address)?;
        ctx.forward(message).await
    }
}

async fn serve(ctx: &Context, port: &str) -> Result<()> {
    let options = TcpListenerOptions::new();
    // A message from the network reaches only workers named as consumers of its listener.
    for address in ["echoer", "raw", "hop"] {
        ctx.flow_controls()
            .add_consumer(&address.into(), &options.spawner_flow_control_id());
    }
    ctx.start_worker("echoer", Echoer)?;
    ctx.start_worker("raw", Raw)?;
    ctx.start_worker("hop", Hop)?;
    let tcp = TcpTransport::get_or_create(ctx)?;
    let listener = tcp.listen(format!("127.0.0.1:{port}"), options).await?;
    println!("ready {}", listener.socket_address().port());
    Ok(())
}

/// Returns whether each of `count` answers was `text`, and prints what came and how fast.
async fn call(ctx: &Context, peer: &str, to: Route, text: &str, count: usize) -> Result<bool> {
    let tcp = TcpTransport::get_or_create(ctx)?;
    let connection = tcp.connect(peer, TcpConnectionOptions::new()).await?;
    let onward_route: Route = to.modify().prepend(connection).build();
    let mut equal = 0;
    let mut round_trips = Vec::with_capacity(count);
    for _ in 0..count {
        let options = MessageSendReceiveOptions::new().with_timeout(ANSWER_TIMEOUT);
        let started = Instant::now();
        let answer = ctx
            .send_and_receive_extended::<String, String>(
                onward_route.clone(),
                text.to_string(),
                options,
            )
            .await?;
        round_trips.push(started.elapsed().as_micros());
        let return_route = answer.return_route().clone();
        let body = answer.into_body()?;
        if body == text {
            equal += 1;
        } else {
            println!("answer {body:?} differs; return route {return_route}");
        }
    }
    round_trips.sort_unstable();
    let median = round_trips[count / 2];
    let p99 = round_trips[count * 99 / 100];
    println!("{equal} of {count} equal, round trip median {median} us, p99 {p99} us");
    Ok(equal == count)
}

fn run_serve(port: String) -> ExitCode {
    let (ctx, mut executor) = NodeBuilder::new().no_logging().build();
    // `execute` returns when the node ends: at once on an error, else only when killed.
    let ended = executor.execute(async move { serve(&ctx, &port).await });
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

fn run_call(peer: String, to: Route, text: String, count: usize) -> ExitCode {
    let (ctx, mut executor) = NodeBuilder::new().no_logging().build();
    let ended = executor.execute(async move {
        let outcome = call(&ctx, &peer, to, &text, count).await;
        ctx.shutdown_node().await?;
        outcome
    });
    match ended {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::from(1),
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

fn fail(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", port] => run_serve(port.to_string()),
        ["call", peer, to, text] => start_call(peer, to, text, "1"),
        ["call", peer, to, text, count] => start_call(peer, to, text, count),
        _ => fail(USAGE),
    }
}

fn start_call(peer: &str, to: &str, text: &str, count: &str) -> ExitCode {
    match (Route::parse(to), count.parse()) {
        (Some(to), Ok(count)) if count > 0 => {
            run_call(peer.to_string(), to, text.to_string(), count)
        }
        _ => fail(USAGE),
    }
}
