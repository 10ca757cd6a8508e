package onward.peers;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiConsumer;

import com.fasterxml.jackson.databind.JsonNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.broker.client.BrokerRSocketClient;
import io.rsocket.broker.client.BrokerRSocketConnector;
import io.rsocket.broker.common.Id;
import io.rsocket.broker.common.Tags;
import io.rsocket.broker.common.WellKnownKey;
import io.rsocket.broker.frames.RoutingType;
import io.rsocket.frame.decoder.PayloadDecoder;
import io.rsocket.lease.Lease;
import io.rsocket.metadata.CompositeMetadataCodec;
import io.rsocket.metadata.TaggingMetadataCodec;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.util.DefaultPayload;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** A connection to the broker, made with {@link BrokerRSocketConnector}. */
final class Connection {

  private static final Duration LEASE = Duration.ofMinutes(10);
  private static final int PENDING = 16;

  private final int id;
  private final BrokerRSocketClient client;

  Connection(int id, JsonNode command) {
    this.id = id;
    Tags.Builder<?> tags = Tags.builder();
    forEachTag(command, tags::with, tags::with);
    String instance = command.get("tags").path(WellKnownKey.INSTANCE_NAME.name()).asText();
    String uris = command.get("uri").asText();
    BrokerRSocketConnector connector = BrokerRSocketConnector.create();
    new Access(uris.split(",")[0]).present(connector);
    client =
        connector
            .routeId(Id.from(UUID.fromString(command.get("route_id").asText())))
            .serviceName(command.get("service").asText())
            .setupTags(tags.buildTags())
            .configure(
                core -> {
                  core
                      .payloadDecoder(PayloadDecoder.DEFAULT)
                      .acceptor(SocketAcceptor.with(new Destination(id, instance)));
                  int fragment = command.path("options").path("fragment").asInt();
                  if (fragment > 0) {
                    core.fragment(fragment);
                  }
                  int lease = command.path("options").path("lease").asInt();
                  if (lease > 0) {
                    core.lease(
                        specification ->
                            specification.sender(() -> once(lease)).maxPendingRequests(PENDING));
                  }
                })
            .toRSocketClient(Access.transport(uris));
  }

  /** One lease, which is not renewed, so that it says how many requests come at all. */
  private static Flux<Lease> once(int requests) {
    return Flux.concat(Flux.just(Lease.create(LEASE, requests)), Flux.never());
  }

  /** Connect; what is returned has a value once SETUP has been sent. */
  Mono<RSocket> open() {
    return client
        .source()
        .doOnNext(
            rsocket -> rsocket.onClose().subscribe(null, this::closed, () -> closed(null)));
  }

  private void closed(Throwable error) {
    Lines.report(
        "connection", id, "event", "closed", "message", error == null ? null : error.getMessage());
  }

  /** End the connection in the middle of whatever it does. */
  void close() {
    client.dispose();
  }

  BrokerRSocketClient client() {
    return client;
  }

  /** Return a payload whose composite metadata hold a route and the address in a command. */
  Payload payload(JsonNode command, String route, String data) {
    CompositeByteBuf metadata = client.allocator().compositeBuffer();
    ByteBuf routing =
        TaggingMetadataCodec.createTaggingContent(client.allocator(), List.of(route));
    CompositeMetadataCodec.encodeAndAddMetadata(
        metadata, client.allocator(), WellKnownMimeType.MESSAGE_RSOCKET_ROUTING, routing);
    client.encodeAddressMetadata(
        metadata,
        address -> {
          address.routingType(RoutingType.valueOf(command.get("routing").asText()));
          forEachTag(command, address::with, address::with);
        });
    if (command.hasNonNull("bearer")) {
      Access.present(metadata, client.allocator(), command.get("bearer").asText());
    }
    ByteBuf body = Unpooled.copiedBuffer(data, StandardCharsets.UTF_8);
    return DefaultPayload.create(body, metadata);
  }

  private static void forEachTag(
      JsonNode command,
      BiConsumer<WellKnownKey, String> known,
      BiConsumer<String, String> literal) {
    command
        .get("tags")
        .fields()
        .forEachRemaining(
            (Map.Entry<String, JsonNode> tag) -> {
              String value = tag.getValue().asText();
              try {
                known.accept(WellKnownKey.valueOf(tag.getKey()), value);
              } catch (IllegalArgumentException unknown) {
                literal.accept(tag.getKey(), value);
              }
            });
  }
}
