package onward.peers;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import io.netty.buffer.ByteBuf;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.RSocketErrorException;
import io.rsocket.broker.common.Key;
import io.rsocket.broker.common.MimeTypes;
import io.rsocket.broker.frames.Address;
import io.rsocket.broker.frames.FrameHeaderFlyweight;
import io.rsocket.exceptions.ApplicationErrorException;
import io.rsocket.metadata.CompositeMetadata;
import io.rsocket.metadata.RoutingMetadata;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.util.DefaultPayload;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Answers the requests that the broker routes to a connection.
 *
 * <pre>
 * request/response    "TEXT"  -> "TEXT from java"; "fail" -> an error, "fail CODE" -> one of that
 *                     code, "nothing" -> completes without an answer, "hold" -> no answer,
 *                     "only NAME" -> an answer if this is the instance of that name, else none
 * fire-and-forget     reported, not answered
 * metadata push       reported; its text is the name of the route
 * request/stream      "COUNT" -> "N from java" for each N, "COUNT TEXT" -> "N TEXT from java",
 *                     "endless" -> elements until cancelled
 * request/channel     each "TEXT" -> "TEXT from java"
 * </pre>
 *
 * One line for each event, with the connection's id: "received" with the interaction, the data, the
 * name of the route and the tags of the address; "canceled" with the number of elements sent;
 * "closed".
 */
final class Destination implements RSocket {

  private final int connection;

  private final String instance;

  Destination(int connection, String instance) {
    this.connection = connection;
    this.instance = instance;
  }

  @Override
  public Mono<Payload> requestResponse(Payload payload) {
    String text = received("request_response", payload);
    String[] words = text.split(" ", 2);
    return switch (words[0]) {
      case "fail" -> Mono.error(words.length == 1 ? refusal() : refusal(Integer.decode(words[1])));
      case "only" -> words[1].equals(instance) ? Mono.just(answerTo(text)) : hold();
      case "hold" -> hold();
      case "nothing" -> Mono.empty();
      default -> Mono.just(answerTo(text));
    };
  }

  private static Throwable refusal() {
    return new ApplicationErrorException("refused by java");
  }

  private static Throwable refusal(int code) {
    return new RSocketErrorException(code, "refused by java") {};
  }

  private Mono<Payload> hold() {
    return Mono.<Payload>never().doOnCancel(() -> canceled("request_response", 0));
  }

  @Override
  public Mono<Void> fireAndForget(Payload payload) {
    received("fire_and_forget", payload);
    return Mono.empty();
  }

  @Override
  public Mono<Void> metadataPush(Payload payload) {
    received("metadata_push", payload);
    return Mono.empty();
  }

  @Override
  public Flux<Payload> requestStream(Payload payload) {
    String text = received("request_stream", payload);
    String[] words = text.split(" ", 2);
    int count = text.equals("endless") ? Integer.MAX_VALUE : Integer.parseInt(words[0]);
    String rest = words.length > 1 ? " " + words[1] : "";
    AtomicInteger sent = new AtomicInteger();
    return Flux.range(1, count)
        .map(number -> answerTo(number + rest))
        .doOnNext(answer -> sent.incrementAndGet())
        .doOnCancel(() -> canceled("request_stream", sent.get()));
  }

  @Override
  public Flux<Payload> requestChannel(Publisher<Payload> payloads) {
    AtomicInteger sent = new AtomicInteger();
    return Flux.from(payloads)
        .switchOnFirst(
            (first, all) -> {
              if (first.hasValue()) {
                received("request_channel", first.get());
              }
              return all.map(element -> answerTo(element.getDataUtf8()));
            })
        .doOnNext(answer -> sent.incrementAndGet())
        .doOnCancel(() -> canceled("request_channel", sent.get()));
  }

  private static Payload answerTo(String text) {
    return DefaultPayload.create(text + " from java");
  }

  private void canceled(String interaction, int sent) {
    Lines.report(
        "connection", connection, "event", "canceled", "interaction", interaction, "sent", sent);
  }

  private String received(String interaction, Payload payload) {
    String text = payload.getDataUtf8();
    String route = null;
    Map<String, String> tags = new LinkedHashMap<>();
    for (CompositeMetadata.Entry entry : new CompositeMetadata(payload.sliceMetadata(), false)) {
      if (WellKnownMimeType.MESSAGE_RSOCKET_ROUTING.getString().equals(entry.getMimeType())) {
        route = String.join(".", new RoutingMetadata(entry.getContent()));
      } else if (MimeTypes.BROKER_FRAME_MIME_TYPE.equals(entry.getMimeType())) {
        ByteBuf frame = entry.getContent();
        Address address = Address.from(frame, FrameHeaderFlyweight.flags(frame));
        address.getTags().asMap().forEach((key, value) -> tags.put(nameOf(key), value));
      }
    }
    Lines.report(
        "connection", connection, "event", "received", "interaction", interaction,
        "data", text, "route", route, "tags", tags);
    return text;
  }

  private static String nameOf(Key key) {
    return key.getWellKnownKey() == null ? key.getKey() : key.getWellKnownKey().name();
  }
}
