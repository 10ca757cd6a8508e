package onward.peers;

import java.io.File;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.CompositeByteBuf;
import io.netty.handler.ssl.SslContextBuilder;
import io.rsocket.broker.client.BrokerRSocketConnector;
import io.rsocket.metadata.AuthMetadataCodec;
import io.rsocket.metadata.CompositeMetadataCodec;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.transport.ClientTransport;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.client.WebsocketClientTransport;
import reactor.core.publisher.Mono;
import reactor.netty.http.Http11SslContextSpec;
import reactor.netty.http.client.HttpClient;
import reactor.netty.tcp.TcpClient;
import reactor.netty.tcp.TcpSslContextSpec;

/**
 * The way to a broker that a URI names: tcp://HOST:PORT or ws://HOST:PORT, with TLS tls:// and
 * wss://. Its query has the TLS files and the credentials:
 *
 * <pre>
 * authority=FILE     the trusted authority, in PEM
 * certificate=FILE   the client's certificate with its key, in PEM
 * simple=USER:TEXT   a user and the password
 * bearer=TEXT        a token
 * </pre>
 */
final class Access {

  private final URI uri;
  private final Map<String, String> query = new HashMap<>();

  Access(String uri) {
    this.uri = URI.create(uri);
    if (this.uri.getRawQuery() != null) {
      for (String word : this.uri.getRawQuery().split("&")) {
        String[] pair = word.split("=", 2);
        query.put(pair[0], URLDecoder.decode(pair[1], StandardCharsets.UTF_8));
      }
    }
  }

  /** Return the transport to each of several brokers in turn, by URIs with a comma between. */
  static ClientTransport transport(String uris) {
    List<ClientTransport> transports =
        Arrays.stream(uris.split(",")).map(uri -> new Access(uri).transport()).toList();
    AtomicInteger turn = new AtomicInteger();
    return () ->
        Mono.defer(() -> transports.get(turn.getAndIncrement() % transports.size()).connect());
  }

  private ClientTransport transport() {
    String host = uri.getHost();
    int port = uri.getPort();
    return switch (uri.getScheme()) {
      case "tcp" -> TcpClientTransport.create(new InetSocketAddress(host, port));
      case "ws" -> WebsocketClientTransport.create(URI.create("ws://" + host + ":" + port));
      case "tls" ->
          TcpClientTransport.create(
              TcpClient.create()
                  .host(host)
                  .port(port)
                  .secure(ssl -> ssl.sslContext(TcpSslContextSpec.forClient().configure(this::files))));
      case "wss" ->
          WebsocketClientTransport.create(
              HttpClient.create()
                  .host(host)
                  .port(port)
                  .secure(ssl -> ssl.sslContext(Http11SslContextSpec.forClient().configure(this::files))),
              "/");
      default -> throw new IllegalArgumentException("no such transport: " + uri);
    };
  }

  private void files(SslContextBuilder context) {
    context.trustManager(new File(query.get("authority")));
    if (query.containsKey("certificate")) {
      File certificate = new File(query.get("certificate"));
      context.keyManager(certificate, certificate);
    }
  }

  /** Present the credentials in SETUP, if there are any. */
  void present(BrokerRSocketConnector connector) {
    if (query.containsKey("bearer")) {
      present(connector, query.get("bearer"));
    } else if (query.containsKey("simple")) {
      String[] user = query.get("simple").split(":", 2);
      present(connector, user[0], user[1]);
    }
  }

  // --8<-- [start:credentials]
  private static final String AUTHENTICATION =
      WellKnownMimeType.MESSAGE_RSOCKET_AUTHENTICATION.getString();

  static void present(BrokerRSocketConnector connector, String token) {
    connector.setupMetadata(
        AuthMetadataCodec.encodeBearerMetadata(ByteBufAllocator.DEFAULT, token.toCharArray()),
        AUTHENTICATION);
  }

  static void present(BrokerRSocketConnector connector, String user, String password) {
    connector.setupMetadata(
        AuthMetadataCodec.encodeSimpleMetadata(
            ByteBufAllocator.DEFAULT, user.toCharArray(), password.toCharArray()),
        AUTHENTICATION);
  }
  // --8<-- [end:credentials]

  /** Present a token in the metadata of a request. */
  static void present(CompositeByteBuf metadata, ByteBufAllocator allocator, String token) {
    CompositeMetadataCodec.encodeAndAddMetadata(
        metadata,
        allocator,
        WellKnownMimeType.MESSAGE_RSOCKET_AUTHENTICATION,
        AuthMetadataCodec.encodeBearerMetadata(allocator, token.toCharArray()));
  }
}
