package onward.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.rsocket.RSocketErrorException;
import io.rsocket.broker.client.spring.BrokerRSocketRequester;
import io.rsocket.broker.client.spring.BrokerRSocketRequester.BrokerRequestSpec;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.handler.annotation.MessageMapping;
import org.springframework.messaging.handler.annotation.Payload;
import org.springframework.messaging.rsocket.RSocketRequester.RequestSpec;
import org.springframework.messaging.rsocket.annotation.ConnectMapping;
import org.springframework.stereotype.Controller;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * A program of Spring Boot that is a destination and a requester, by one connection that
 * rsocket-broker-client-spring makes. Its properties are in application.yml; those it is started
 * with say more; {@link Secured} says what a URI has:
 *
 * <pre>
 * java -cp ... onward.peers.SpringPeer \
 *     --broker=URI \
 *     --io.rsocket.broker.client.service-name=SERVICE --asked=SERVICE
 * </pre>
 *
 * <p>It prints lines of JSON: "ready", then one for each request that comes, as
 * ../js/destination.js does, and one for each line INTERACTION=ARGUMENT that it reads, as the
 * requesters of the other languages. Requests go to the service `asked`, by the property that
 * configures an address for their route, or, by INTERACTION@SERVICE=ARGUMENT, to another one, with a
 * second address, which the program gives. Beside the usual interactions:
 *
 * <pre>
 * for_user=USER   a request/response to the route stock.USER, which application.yml makes sticky
 * </pre>
 */
@SpringBootApplication
public class SpringPeer {

  private static final int CREDIT = 5;
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws IOException {
    ConfigurableApplicationContext context =
        new SpringApplicationBuilder(SpringPeer.class).run(arguments);
    BrokerRSocketRequester requester = context.getBean(BrokerRSocketRequester.class);
    try {
      requester.rsocketClient().source().block();
    } catch (RuntimeException error) {
      print(Map.of("event", "failed", "message", String.valueOf(error.getMessage())));
      Runtime.getRuntime().halt(1);
    }
    print(Map.of("event", "ready"));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split("=", 2);
      ask(requester, words[0], words[1]);
    }
    Runtime.getRuntime().halt(0);
  }

  // --- requester -------------------------------------------------------------------------------

  private static void ask(BrokerRSocketRequester requester, String name, String argument) {
    Map<String, Object> report = new LinkedHashMap<>();
    report.put("interaction", name);
    report.put("elements", List.of());
    try {
      String[] words = name.split("@", 2);
      String to = words.length == 2 ? words[1] : null;
      List<String> elements = send(requester, words[0], argument, to).collectList().block();
      report.put("elements", elements);
      report.put("outcome", "completed");
    } catch (RuntimeException error) {
      report.put("outcome", "failed");
      report.put("code", error instanceof RSocketErrorException known ? known.errorCode() : null);
      report.put("message", String.valueOf(error.getMessage()));
    }
    print(report);
  }

  private static Flux<String> send(
      BrokerRSocketRequester requester, String interaction, String argument, String to) {
    return switch (interaction) {
      case "request_response" ->
          one(route(requester, "echo", to).data(argument)::retrieveMono);
      case "for_user" -> one(requester.route("stock." + argument).data(argument)::retrieveMono);
      case "fire_and_forget" ->
          route(requester, "note", to).data(argument).send().thenMany(Flux.empty());
      case "metadata_push" ->
          ((RequestSpec) requester.route(argument)).sendMetadata().thenMany(Flux.empty());
      case "request_stream" ->
          route(requester, "echo", to)
              .data(argument)
              .retrieveFlux(String.class)
              .limitRate(CREDIT);
      case "first_of_stream" ->
          route(requester, "echo", to)
              .data("endless")
              .retrieveFlux(String.class)
              .limitRate(CREDIT)
              .take(Long.parseLong(argument));
      case "request_channel" ->
          route(requester, "echo", to)
              .data(Flux.fromIterable(Arrays.asList(argument.split(","))), String.class)
              .retrieveFlux(String.class)
              .limitRate(CREDIT);
      default -> throw new IllegalArgumentException("no such interaction: " + interaction);
    };
  }

  private static BrokerRequestSpec route(
      BrokerRSocketRequester requester, String route, String to) {
    BrokerRequestSpec request = requester.route(route);
    return to == null ? request : request.address(to);
  }

  private interface Retrieving {
    Mono<String> as(Class<String> type);
  }

  private static Flux<String> one(Retrieving retrieving) {
    return retrieving.as(String.class).flux();
  }

  // --- destination -----------------------------------------------------------------------------

  /** What answers. Spring tells the methods apart by what they take and return. */
  @Controller
  static class Answers {

    @MessageMapping({"echo", "stock.*"})
    Mono<String> requestResponse(@Payload String text) {
      received("request_response", text, "echo");
      return switch (text) {
        case "fail" -> Mono.error(new IllegalStateException("refused by spring"));
        case "hold" -> Mono.never();
        default -> Mono.just(answerTo(text));
      };
    }

    /** On a route of its own: with "echo" it would be one of two answers to a request/response. */
    @MessageMapping("note")
    void fireAndForget(@Payload String text) {
      received("fire_and_forget", text, "note");
    }

    /** A push is, to Spring, something that comes with a connection. */
    @ConnectMapping("news")
    Mono<Void> metadataPush() {
      received("metadata_push", "", "news");
      return Mono.empty();
    }

    @MessageMapping("echo")
    Flux<String> requestStream(@Payload String text) {
      received("request_stream", text, "echo");
      int[] sent = {0};
      int last = text.equals("endless") ? Integer.MAX_VALUE : Integer.parseInt(text);
      return Flux.range(1, last)
          .map(number -> answerTo(String.valueOf(number)))
          .doOnNext(answer -> sent[0]++)
          .doOnCancel(
              () ->
                  print(
                      Map.of(
                          "event", "canceled", "interaction", "request_stream", "sent", sent[0])));
    }

    @MessageMapping("echo")
    Flux<String> requestChannel(Flux<String> texts) {
      boolean[] begun = {false};
      return texts
          .doOnNext(
              text -> {
                if (!begun[0]) {
                  begun[0] = true;
                  received("request_channel", text, "echo");
                }
              })
          .map(Answers::answerTo);
    }

    private static void received(String interaction, String data, String route) {
      Map<String, Object> report = new LinkedHashMap<>();
      report.put("event", "received");
      report.put("interaction", interaction);
      report.put("data", data);
      report.put("route", route);
      print(report);
    }

    private static String answerTo(String text) {
      return text + " from spring";
    }
  }

  private static synchronized void print(Map<String, ?> report) {
    try {
      System.out.println(JSON.writeValueAsString(report));
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }
}
