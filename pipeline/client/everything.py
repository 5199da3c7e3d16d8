"""All that the client offers, in one place; `public` names it."""

# ruff: noqa: F401 - they are here to be taken from here

from pipeline.client import aio, spark
from pipeline.client import schemadoor as schema
from pipeline.client.choices import (
    BatchingType,
    CompressionType,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pipeline.client.client import Client
from pipeline.client.commanding.commands import Command, cancel, release_now, reschedule, shift, undo
from pipeline.client.commanding.outcomes import Outcome
from pipeline.client.commanding.outcomes import outcomes as commands
from pipeline.client.commanding.selecting import Selection
from pipeline.client.consuming.acknowledgingrows import SETTLED_BY, acknowledge, negative_acknowledge
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.reader import Reader
from pipeline.client.create import create_all
from pipeline.client.exceptions import (
    AlreadyClosed,
    CalendarNotFound,
    ClientError,
    CommandNotFound,
    ConnectError,
    ConsumerBusy,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    InvalidUrl,
    MemoryBufferIsFull,
    MessageTooBig,
    OperationNotSupported,
    ProducerBusy,
    ProducerQueueIsFull,
    PulsarException,
    Result,
    ScheduleNotFound,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
)
from pipeline.client.insight.departures import Outage, Pause, Rate
from pipeline.client.insight.facts import Step
from pipeline.client.insight.forecast import Forecast, SubscriptionForecast
from pipeline.client.insight.forecasting import forecast
from pipeline.client.insight.pending import Backlog, KeyBacklog, Pending, pending, pending_by_key
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.topics import TopicState, topics
from pipeline.client.insight.trace import MessageState, Trace, trace
from pipeline.client.message import Message, MessageId
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.producing.producer import Producer
from pipeline.client.subscribing.calendars import calendars, set_calendar
from pipeline.client.subscribing.schedules import (
    ScheduleState,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule_now,
    schedules,
    set_schedule,
)
from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscriptions, unsubscribe
from pipeline.client.subscribing.topics import create_partitioned_topic, subscribe
from pipeline.client.tables.deliveries import Deliveries, Delivery
from pipeline.subscriptions.calendars import CalendarDay, Calendars
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.schedules import Schedule
from pipeline.subscriptions.topicpolicies import TopicPolicies
from state import DelaylineError
