package onward.peers;

import java.net.URI;
import java.util.Arrays;
import java.util.Map;

import io.rsocket.broker.acceptor.BrokerSocketAcceptor;
import io.rsocket.broker.spring.BrokerProperties;
import io.rsocket.broker.spring.DefaultServerTransportFactory;
import io.rsocket.broker.spring.ServerTransportFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.rsocket.context.RSocketServerInitializedEvent;
import org.springframework.boot.rsocket.netty.NettyRSocketServerFactory;
import org.springframework.boot.rsocket.server.RSocketServerFactory;
import org.springframework.boot.web.server.Ssl;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;

/**
 * The Java broker, by itself: no cluster, and its defaults otherwise.
 *
 * <pre>java -cp ... onward.peers.JavaBroker URI...</pre>
 *
 * A URI is {@code tcp://HOST:PORT} or {@code ws://HOST:PORT}; port 0 is any free one. Prints
 * {@code listening URI} for each, in that order. Ends when standard input does.
 *
 * With a key and certificate in a file of PKCS #12, {@code -Donward.key-store=FILE} and
 * {@code -Donward.key-store-password=TEXT}, also {@code wss://HOST:PORT}: the broker takes that for
 * the scheme of a listener, but has no property for what TLS needs.
 */
@EnableAutoConfiguration
public class JavaBroker {

  private static final String PREFIX = "io.rsocket.broker.";

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 0) {
      System.err.println("usage: JavaBroker URI...");
      System.exit(2);
    }
    String first = arguments[0];
    SpringApplication application = new SpringApplication(JavaBroker.class);
    application.setWebApplicationType(WebApplicationType.NONE);
    application.setDefaultProperties(
        Map.of(
            PREFIX + "uri", first,
            PREFIX + "cluster.enabled", "false",
            "spring.main.banner-mode", "off",
            "spring.main.log-startup-info", "false"));
    ConfigurableApplicationContext context = application.run();
    for (String more : Arrays.asList(arguments).subList(1, arguments.length)) {
      listen(context, URI.create(more));
    }
    while (System.in.read() >= 0) {
      // It says nothing; what matters is that it ends.
    }
    // There is nothing to save, and an orderly end takes two seconds.
    Runtime.getRuntime().halt(0);
  }

  // The broker's own configuration has one listener for clients. More of them, with the same
  // acceptor, share its table.
  private static void listen(ConfigurableApplicationContext context, URI uri) {
    var factories = context.getBeanProvider(ServerTransportFactory.class).orderedStream();
    var factory = factories.filter(each -> each.supports(uri)).findFirst().orElseThrow();
    var server = factory.create(uri).create(context.getBean(BrokerSocketAcceptor.class));
    server.start();
    report(uri, server.address().getPort());
  }

  private static void report(URI uri, int port) {
    System.out.printf("listening %s://%s:%d%n", uri.getScheme(), uri.getHost(), port);
    System.out.flush();
  }

  @Bean
  @Order(Ordered.HIGHEST_PRECEDENCE)
  @ConditionalOnProperty("onward.key-store")
  static ServerTransportFactory secured(
      DefaultServerTransportFactory plain,
      @Value("${onward.key-store}") String file,
      @Value("${onward.key-store-password}") String password) {
    Ssl ssl = new Ssl();
    ssl.setKeyStore(file);
    ssl.setKeyStoreType("PKCS12");
    ssl.setKeyStorePassword(password);
    return new ServerTransportFactory() {
      @Override
      public boolean supports(URI uri) {
        return "wss".equals(uri.getScheme());
      }

      @Override
      public RSocketServerFactory create(URI uri) {
        var factory = (NettyRSocketServerFactory) plain.create(uri);
        factory.setSsl(ssl);
        return factory;
      }
    };
  }

  private final BrokerProperties properties;

  JavaBroker(BrokerProperties properties) {
    this.properties = properties;
  }

  @EventListener
  void onListening(RSocketServerInitializedEvent event) {
    report(properties.getUri(), event.getServer().address().getPort());
  }
}
