package onward.peers;

import java.io.File;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;

import io.netty.handler.ssl.SslContextBuilder;
import io.rsocket.broker.client.spring.BrokerRSocketRequester;
import io.rsocket.broker.client.spring.BrokerRSocketRequesterBuilder;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.transport.ClientTransport;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.client.WebsocketClientTransport;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.security.rsocket.metadata.BearerTokenAuthenticationEncoder;
import org.springframework.security.rsocket.metadata.BearerTokenMetadata;
import org.springframework.security.rsocket.metadata.SimpleAuthenticationEncoder;
import org.springframework.security.rsocket.metadata.UsernamePasswordMetadata;
import org.springframework.util.MimeType;
import org.springframework.util.MimeTypeUtils;
import org.springframework.web.util.UriComponentsBuilder;
import org.springframework.web.util.UriUtils;
import reactor.netty.http.Http11SslContextSpec;
import reactor.netty.http.client.HttpClient;
import reactor.netty.tcp.TcpClient;
import reactor.netty.tcp.TcpSslContextSpec;

/**
 * The requester, with the TLS files and the credentials that the query of the property `broker`
 * has: tcp://HOST:PORT or ws://HOST:PORT, with TLS tls:// and wss://, and
 *
 * <pre>
 * authority=FILE     the trusted authority, in PEM
 * certificate=FILE   the client's certificate with its key, in PEM
 * simple=USER:TEXT   a user and the password
 * bearer=TEXT        a token
 * </pre>
 */
@Configuration
class Secured {

  // --8<-- [start:credentials]
  private static final MimeType AUTHENTICATION =
      MimeTypeUtils.parseMimeType(WellKnownMimeType.MESSAGE_RSOCKET_AUTHENTICATION.getString());

  // One encoder: each of the two takes the metadata of the other for its own.
  private static void present(BrokerRSocketRequesterBuilder builder, String token) {
    builder
        .rsocketStrategies(made -> made.encoder(new BearerTokenAuthenticationEncoder()))
        .setupMetadata(new BearerTokenMetadata(token), AUTHENTICATION);
  }

  private static void present(BrokerRSocketRequesterBuilder builder, String user, String password) {
    builder
        .rsocketStrategies(made -> made.encoder(new SimpleAuthenticationEncoder()))
        .setupMetadata(new UsernamePasswordMetadata(user, password), AUTHENTICATION);
  }
  // --8<-- [end:credentials]

  @Bean
  BrokerRSocketRequester requester(BrokerRSocketRequesterBuilder builder, Environment environment) {
    URI uri = URI.create(environment.getRequiredProperty("broker"));
    String token = parameter(uri, "bearer");
    String simple = parameter(uri, "simple");
    if (token != null) {
      present(builder, token);
    } else if (simple != null) {
      String[] user = simple.split(":", 2);
      present(builder, user[0], user[1]);
    }
    return builder.transport(transport(uri));
  }

  private static String parameter(URI uri, String name) {
    String value = UriComponentsBuilder.fromUri(uri).build().getQueryParams().getFirst(name);
    return value == null ? null : UriUtils.decode(value, StandardCharsets.UTF_8);
  }

  private static ClientTransport transport(URI uri) {
    String host = uri.getHost();
    int port = uri.getPort();
    return switch (uri.getScheme()) {
      case "tcp" -> TcpClientTransport.create(new InetSocketAddress(host, port));
      case "ws" -> WebsocketClientTransport.create(URI.create("ws://" + host + ":" + port));
      case "tls" -> TcpClientTransport.create(
          TcpClient.create().host(host).port(port).secure(
              ssl -> ssl.sslContext(TcpSslContextSpec.forClient().configure(made -> files(made, uri)))));
      case "wss" -> WebsocketClientTransport.create(
          HttpClient.create().host(host).port(port).secure(
              ssl -> ssl.sslContext(Http11SslContextSpec.forClient().configure(made -> files(made, uri)))),
          "/");
      default -> throw new IllegalArgumentException("no such transport: " + uri);
    };
  }

  private static void files(SslContextBuilder context, URI uri) {
    context.trustManager(new File(parameter(uri, "authority")));
    String certificate = parameter(uri, "certificate");
    if (certificate != null) {
      context.keyManager(new File(certificate), new File(certificate));
    }
  }
}
