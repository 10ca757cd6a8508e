//! A node of the Ockam Rust crates, to talk to.
//!
//! ```text
//! onward-ockam-peer serve PORT               answer on 127.0.0.1:PORT (0 picks a port) until killed
//! onward-ockam-peer call ADDR ROUTE TEXT [N]  send TEXT to ROUTE at ADDR, N times (once)
//! onward-ockam-peer register ADDR [ALIAS]     have the relay service at ADDR forward to us
//! onward-ockam-peer serve-udp PORT            as `serve`, by datagrams
//! onward-ockam-peer call-udp ADDR ROUTE TEXT [N]  as `call`, by datagrams
//! onward-ockam-peer hops N                    take N messages along ten workers, and count CPU
//! ```
//!
//! `serve` prints `ready PORT` and has three workers: `echoer`, the library's, which takes a
//! String (length-prefixed) and sends it back; `raw`, which sends any payload back untouched;
//! `hop`, which passes a message on to the next address of its route. It has the library's
//! relay service too: `forwarding_service`, also called `static_forwarding_service`.
//!
//! `call` exits with 0 if each answer equals TEXT, 1 if one differs, 2 if one never came.
//!
//! `register` prints `registered ADDRESS` once the relay is there, and serves `echoer` and `raw`
//! through it until killed. With an alias it asks the static service, else the dynamic one.
//!
//! `hops` prints how many hops there were, and the CPU seconds that the process used for them.

mod page;

use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ockam::remote::{RemoteRelay, RemoteRelayOptions};
use ockam::{RelayService, RelayServiceOptions};
use ockam_core::{worker, Address, Any, NeutralMessage, Result, Route, Routed, Worker};
use ockam_node::workers::Echoer;
use ockam_node::{Context, MessageSendReceiveOptions, NodeBuilder};
use ockam_transport_tcp::{TcpConnectionOptions, TcpListenerOptions, TcpTransport};
use ockam_transport_udp::{UdpBindArguments, UdpBindOptions, UdpTransport, UDP};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const USAGE: &str =
    "usage: onward-ockam-peer serve PORT | call ADDR ROUTE TEXT [N] | register ADDR [ALIAS] | \
     serve-udp PORT | call-udp ADDR ROUTE TEXT [N] | hops N";

/// Workers that forward each message of `hops`.
const HOPS: usize = 10;

/// Clock ticks in a second of /proc/self/stat: a constant of Linux's interface.
const TICKS: f64 = 100.0;

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

/// Counts what comes, and tells the one who waits when all of it has.
struct Sink {
    left: usize,
}

#[worker]
impl Worker for Sink {
    type Context = Context;
    type Message = Any;

    async fn handle_message(&mut self, ctx: &mut Context, message: Routed<Any>) -> Result<()> {
        self.left -= 1;
        if self.left > 0 {
            return Ok(());
        }
        let whole_way_back = message.return_route().clone();
        let waiting = whole_way_back.recipient()?.clone();
        ctx.send(waiting, NeutralMessage::from(Vec::new())).await
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
    let relays = RelayServiceOptions::new()
        .alias("static_forwarding_service")
        .prefix("forward_to_")
        .service_as_consumer(&options.spawner_flow_control_id())
        .relay_as_consumer(&options.spawner_flow_control_id());
    RelayService::create(ctx, "forwarding_service", relays)?;
    let tcp = TcpTransport::get_or_create(ctx)?;
    let listener = tcp.listen(format!("127.0.0.1:{port}"), options).await?;
    println!("ready {}", listener.socket_address().port());
    Ok(())
}

async fn serve_udp(ctx: &Context, port: &str) -> Result<()> {
    let options = UdpBindOptions::new();
    for address in ["echoer", "raw", "hop"] {
        ctx.flow_controls()
            .add_consumer(&address.into(), &options.flow_control_id());
    }
    ctx.start_worker("echoer", Echoer)?;
    ctx.start_worker("raw", Raw)?;
    ctx.start_worker("hop", Hop)?;
    let udp = UdpTransport::get_or_create(ctx)?;
    let arguments = UdpBindArguments::new().with_bind_address(format!("127.0.0.1:{port}"))?;
    let bind = udp.bind(arguments, options).await?;
    println!("ready {}", bind.bind_address().port());
    Ok(())
}

/// Returns whether each of `count` answers was `text`, and prints what came and how fast.
async fn call(ctx: &Context, peer: &str, to: Route, text: &str, count: usize) -> Result<bool> {
    let tcp = TcpTransport::get_or_create(ctx)?;
    let connection = tcp.connect(peer, TcpConnectionOptions::new()).await?;
    let onward_route: Route = to.modify().prepend(connection).build();
    ask(ctx, onward_route, text, count).await
}

/// As `call`, by datagrams.
async fn call_udp(ctx: &Context, peer: &str, to: Route, text: &str, count: usize) -> Result<bool> {
    let udp = UdpTransport::get_or_create(ctx)?;
    let bind = udp.bind(UdpBindArguments::new(), UdpBindOptions::new()).await?;
    let onward_route: Route = to
        .modify()
        .prepend(Address::new_with_string(UDP, peer))
        .prepend(bind.sender_address().clone())
        .build();
    ask(ctx, onward_route, text, count).await
}

async fn ask(ctx: &Context, onward_route: Route, text: &str, count: usize) -> Result<bool> {
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

/// Returns once the relay is there.
async fn register(ctx: &Context, peer: &str, alias: Option<String>) -> Result<()> {
    let tcp = TcpTransport::get_or_create(ctx)?;
    let connection = tcp.connect(peer, TcpConnectionOptions::new()).await?;
    for address in ["echoer", "raw"] {
        ctx.flow_controls()
            .add_consumer(&address.into(), connection.flow_control_id());
    }
    ctx.start_worker("echoer", Echoer)?;
    ctx.start_worker("raw", Raw)?;
    let options = RemoteRelayOptions::new();
    let relay = match alias {
        Some(alias) => RemoteRelay::create_static(ctx, connection, alias, options).await?,
        None => RemoteRelay::create(ctx, connection, options).await?,
    };
    println!("registered {}", relay.remote_address());
    Ok(())
}

/// Takes messages along `HOPS` workers, each of which rewrites both routes.
async fn hops(ctx: &mut Context, count: usize) -> Result<()> {
    let mut onward_route: Vec<String> = Vec::new();
    for number in 0..HOPS {
        let address = format!("hop{number}");
        ctx.start_worker(address.as_str(), Hop)?;
        onward_route.push(address);
    }
    ctx.start_worker("sink", Sink { left: count })?;
    onward_route.push("sink".to_string());
    let onward_route = Route::parse(onward_route.join("=>")).expect("a route");
    let before = cpu_seconds();
    for _ in 0..count {
        // It waits where a mailbox is full.
        ctx.send(onward_route.clone(), NeutralMessage::from(b"payload".to_vec()))
            .await?;
    }
    ctx.receive::<Any>().await?;
    println!("{} hops {:.3} s", count * HOPS, cpu_seconds() - before);
    Ok(())
}

/// The CPU seconds that this process has used so far, all its threads together.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux's /proc");
    // The name in brackets may have spaces; user and system time are the 12th and 13th after it.
    let behind = stat.rsplit(')').next().unwrap_or("");
    let ticks = |index: usize| -> f64 {
        let field = behind.split_whitespace().nth(index).expect("a field");
        field.parse().expect("a number")
    };
    (ticks(11) + ticks(12)) / TICKS
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

fn run_serve_udp(port: String) -> ExitCode {
    let (ctx, mut executor) = NodeBuilder::new().no_logging().build();
    let ended = executor.execute(async move { serve_udp(&ctx, &port).await });
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

fn run_call(udp: bool, peer: String, to: Route, text: String, count: usize) -> ExitCode {
    let (ctx, mut executor) = NodeBuilder::new().no_logging().build();
    let ended = executor.execute(async move {
        let outcome = if udp {
            call_udp(&ctx, &peer, to, &text, count).await
        } else {
            call(&ctx, &peer, to, &text, count).await
        };
        ctx.shutdown_node().await?;
        outcome
    });
    match ended {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::from(1),
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

fn run_register(peer: String, alias: Option<String>) -> ExitCode {
    let (ctx, mut executor) = NodeBuilder::new().no_logging().build();
    let ended = executor.execute(async move { register(&ctx, &peer, alias).await });
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

fn run_hops(count: usize) -> ExitCode {
    let (mut ctx, mut executor) = NodeBuilder::new().no_logging().build();
    let ended = executor.execute(async move {
        let outcome = hops(&mut ctx, count).await;
        ctx.shutdown_node().await?;
        outcome
    });
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
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
        ["call", peer, to, text] => start_call(false, peer, to, text, "1"),
        ["call", peer, to, text, count] => start_call(false, peer, to, text, count),
        ["serve-udp", port] => run_serve_udp(port.to_string()),
        ["call-udp", peer, to, text] => start_call(true, peer, to, text, "1"),
        ["call-udp", peer, to, text, count] => start_call(true, peer, to, text, count),
        ["register", peer] => run_register(peer.to_string(), None),
        ["register", peer, alias] => run_register(peer.to_string(), Some(alias.to_string())),
        ["hops", count] => match count.parse() {
            Ok(count) if count > 0 => run_hops(count),
            _ => fail(USAGE),
        },
        _ => fail(USAGE),
    }
}

fn start_call(udp: bool, peer: &str, to: &str, text: &str, count: &str) -> ExitCode {
    match (Route::parse(to), count.parse()) {
        (Some(to), Ok(count)) if count > 0 => {
            run_call(udp, peer.to_string(), to, text.to_string(), count)
        }
        _ => fail(USAGE),
    }
}
