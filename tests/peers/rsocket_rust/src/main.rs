//! A requester, or a destination, made with `rsocket_rust`. It ends with standard input.
//!
//!     onward-rsocket-rust-peer requester HOST:PORT SERVICE [FRAGMENT]
//!     onward-rsocket-rust-peer destination HOST:PORT SERVICE [FRAGMENT]
//!
//! FRAGMENT is the size of frames over which the library cuts payloads into fragments.
//!
//! A requester reads lines `INTERACTION=ARGUMENT`, or `INTERACTION@SERVICE=ARGUMENT` for another
//! service, and prints a line of JSON for each:
//! {"interaction", "elements", "outcome"}, with "code" and "message" if the outcome is "failed".
//! What it asks and what a destination answers is what `../js/requester.js` and
//! `../js/destination.js` say, except that this library has no credit: a requester asks for all
//! elements at once, and a destination sends all it has.

use std::env;
use std::io::{stdin, BufRead};

use futures::StreamExt;
use rsocket_rust::error::RSocketError;
use rsocket_rust::prelude::*;
use rsocket_rust::{async_trait, stream, Client, Result};
use rsocket_rust_transport_tcp::TcpClientTransport;

const BROKER_FRAME: &str = "message/x.rsocket.broker.frame.v0";
const COMPOSITE: &str = "message/x.rsocket.composite-metadata.v0";
const ROUTING: u8 = 0x80 | 0x7e;

// --- the broker's frames -----------------------------------------------------------------------

fn header(kind: u16, flags: u16) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 1];
    frame.extend((kind << 10 | flags).to_be_bytes());
    frame
}

fn text(value: &str) -> Vec<u8> {
    [&[value.len() as u8], value.as_bytes()].concat()
}

fn entry(head: Vec<u8>, content: Vec<u8>) -> Vec<u8> {
    let size = (content.len() as u32).to_be_bytes();
    [head, size[1..].to_vec(), content].concat()
}

fn broker_entry(frame: Vec<u8>) -> Vec<u8> {
    let mime = [&[BROKER_FRAME.len() as u8 - 1], BROKER_FRAME.as_bytes()].concat();
    entry(mime, frame)
}

fn route_setup(service: &str, id: u32) -> Vec<u8> {
    let id = [[0; 12].to_vec(), id.to_be_bytes().to_vec()].concat();
    broker_entry([header(1, 0), id, text(service)].concat())
}

/// Metadata of a request: where it goes, and the route `echo`, or the text of a metadata push.
fn address(service: &str, route: &str) -> Vec<u8> {
    let tags = [vec![0x81], text(service)].concat();
    let frame = [header(5, 0x080), vec![0; 16], tags].concat();
    [broker_entry(frame), entry(vec![ROUTING], text(route))].concat()
}

/// The route in composite metadata.
fn route_in(metadata: &[u8]) -> String {
    let mut rest = metadata;
    while !rest.is_empty() {
        let named = rest[0] & 0x80 != 0;
        let head = if named { 1 } else { 2 + rest[0] as usize };
        let size = u32::from_be_bytes([0, rest[head], rest[head + 1], rest[head + 2]]) as usize;
        let content = &rest[head + 3..head + 3 + size];
        if named && rest[0] == ROUTING {
            return String::from_utf8_lossy(&content[1..]).into_owned();
        }
        rest = &rest[head + 3 + size..];
    }
    String::new()
}

// --- lines -------------------------------------------------------------------------------------

fn data_of(payload: &Payload) -> String {
    payload.data_utf8().unwrap_or("").to_owned()
}

/// Print a line of JSON. Texts here are such that Rust quotes them as JSON does.
fn outcome(interaction: &str, elements: &[String], failure: Option<String>) {
    let end = match failure {
        None => "\"outcome\": \"completed\"".to_owned(),
        Some(text) => format!("\"outcome\": \"failed\", \"code\": {}, \"message\": {text:?}", code_of(&text)),
    };
    println!("{{\"interaction\": {interaction:?}, \"elements\": {elements:?}, {end}}}");
}

/// The library keeps the code of an error as the name that its text begins with.
fn code_of(text: &str) -> u32 {
    match text.split(':').next() {
        Some("APPLICATION_ERROR") => 0x201,
        Some("REJECTED") => 0x202,
        Some("CANCELLED") => 0x203,
        Some("INVALID") => 0x204,
        _ => 0,
    }
}

// --- requester ---------------------------------------------------------------------------------

async fn ask(client: &Client, service: &str, name: &str, argument: &str) {
    let (interaction, service) = name.split_once('@').unwrap_or((name, service));
    let payload = |data: &str| Payload::new(
        Some(data.to_owned().into()),
        Some(address(service, "echo").into()),
    );
    let mut elements = Vec::new();
    let mut failure = None;
    match interaction {
        "metadata_push" => {
            let push = Payload::new(None, Some(address(service, argument).into()));
            failure = client.metadata_push(push).await.err().map(|e| e.to_string());
        }
        "fire_and_forget" => {
            let sent = client.fire_and_forget(payload(argument)).await;
            failure = sent.err().map(|e| e.to_string());
        }
        "request_response" => match client.request_response(payload(argument)).await {
            Ok(answer) => elements.extend(answer.iter().map(data_of)),
            Err(error) => failure = Some(error.to_string()),
        },
        _ => {
            let mut answers = match interaction {
                "request_stream" => client.request_stream(payload(argument)),
                "first_of_stream" => client.request_stream(payload("endless")),
                _ => {
                    let asked: Vec<_> = argument.split(',').map(|each| Ok(payload(each))).collect();
                    client.request_channel(Box::pin(futures::stream::iter(asked)))
                }
            };
            let wanted = if interaction == "first_of_stream" { argument.parse().unwrap() } else { usize::MAX };
            while elements.len() < wanted {
                match answers.next().await {
                    Some(Ok(each)) => elements.push(data_of(&each)),
                    Some(Err(error)) => failure = Some(error.to_string()),
                    None => break,
                }
            }
        }
    }
    outcome(name, &elements, failure);
}

// --- destination -------------------------------------------------------------------------------

struct Destination;

fn received(interaction: &str, payload: &Payload) -> String {
    let data = data_of(payload);
    let route = route_in(payload.metadata().map_or(&[][..], |found| found.as_ref()));
    println!(
        "{{\"event\": \"received\", \"interaction\": {interaction:?}, \"data\": {data:?}, \"route\": {route:?}}}"
    );
    data
}

fn answer_to(text: impl std::fmt::Display) -> Payload {
    Payload::builder().set_data_utf8(&format!("{text} from rust")).build()
}

#[async_trait]
impl RSocket for Destination {
    async fn metadata_push(&self, payload: Payload) -> Result<()> {
        received("metadata_push", &payload);
        Ok(())
    }

    async fn fire_and_forget(&self, payload: Payload) -> Result<()> {
        received("fire_and_forget", &payload);
        Ok(())
    }

    async fn request_response(&self, payload: Payload) -> Result<Option<Payload>> {
        let text = received("request_response", &payload);
        match text.as_str() {
            "fail" => Err(RSocketError::WithDescription("refused by rust".into()).into()),
            "hold" => futures::future::pending().await,
            _ => Ok(Some(answer_to(text))),
        }
    }

    fn request_stream(&self, payload: Payload) -> Flux<Result<Payload>> {
        // COUNT, or COUNT TEXT: then the text is in each element, behind its number.
        let asked = received("request_stream", &payload);
        let end = asked.find(' ').unwrap_or(asked.len());
        let (count, rest) = (asked[..end].parse::<u64>().unwrap(), asked[end..].to_owned());
        let answers = (1..=count).map(move |each| Ok(answer_to(format!("{each}{rest}"))));
        Box::pin(futures::stream::iter(answers))
    }

    fn request_channel(&self, mut payloads: Flux<Result<Payload>>) -> Flux<Result<Payload>> {
        Box::pin(stream! {
            let mut first = true;
            while let Some(Ok(payload)) = payloads.next().await {
                if first {
                    received("request_channel", &payload);
                }
                first = false;
                yield Ok(answer_to(data_of(&payload)));
            }
        })
    }
}

// --- both --------------------------------------------------------------------------------------

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> = env::args().collect();
    let (role, place, service) = (&words[1], &words[2], &words[3]);
    let serves = role == "destination";
    let name = if serves { service } else { "rust-requester" };
    let mut builder = RSocketFactory::connect()
        .transport(TcpClientTransport::from(place.as_str()))
        .metadata_mime_type(COMPOSITE)
        .data_mime_type("text/plain")
        .setup(Payload::new(None, Some(route_setup(name, std::process::id()).into())))
        .acceptor(Box::new(|| Box::new(Destination)));
    if let Some(size) = words.get(4) {
        builder = builder.fragment(size.parse().unwrap());
    }
    let client = builder.start().await.unwrap();
    if serves {
        println!("{{\"event\": \"ready\"}}");
    }
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let (interaction, argument) = line.split_once('=').unwrap();
        ask(&client, service, interaction, argument).await;
    }
}
