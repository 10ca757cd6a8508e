//! The Rust code of docs/how-to/talk-to-ockam.md, word for word, so that it is compiled.

use ockam_core::{route, Result};
use ockam_node::workers::Echoer;
use ockam_node::Context;
use ockam_transport_tcp::{TcpConnectionOptions, TcpListenerOptions, TcpTransport};

#[allow(dead_code)]
async fn serve(ctx: &Context) -> Result<()> {
    let tcp = TcpTransport::get_or_create(ctx)?;
    let listener = tcp.listen("127.0.0.1:4000", TcpListenerOptions::new()).await?;
    ctx.flow_controls()
        .add_consumer(&"echoer".into(), listener.flow_control_id());
    ctx.start_worker("echoer", Echoer)?;
    Ok(())
}

#[allow(dead_code)]
async fn call(ctx: &Context) -> Result<String> {
    let tcp = TcpTransport::get_or_create(ctx)?;
    let connection = tcp.connect("127.0.0.1:4000", TcpConnectionOptions::new()).await?;
    let reply: String = ctx
        .send_and_receive(route![connection, "echo"], "hello".to_string())
        .await?;
    Ok(reply)
}
